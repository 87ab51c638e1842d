"""Saccade and ONNX Runtime in processes of their own, which run an ONNX file on inputs by name and allocate the outputs."""

from .workers import Timed


class Contender(Timed):
    """Base: `bind` returns a function of nothing that gives the outputs."""

    def __init__(self, path, threads):
        self.path, self.threads = path, threads

    def start(self, inputs):
        """The outputs for the inputs of later calls."""
        self.call = self.bind(inputs)
        return self.call()

    def timed_run(self):
        """Seconds of a call."""
        return self.fastest(3)


class Ours(Contender):
    def bind(self, inputs):
        import saccade
        from saccade.onnx import backend

        saccade.set_num_threads(self.threads)
        prepared = backend.prepare(self.path)
        return lambda: prepared.run(inputs)


class Runtime(Contender):
    def bind(self, inputs):
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.add_session_config_entry("session.force_spinning_stop", "1")
        session = onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, inputs)
