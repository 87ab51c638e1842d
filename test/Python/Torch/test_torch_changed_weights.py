"""A compiled module computes with the weights that the module has at the call, or refuses them by name."""

import threading

import pytest

torch = pytest.importorskip("torch")

from programs import refused

import saccade
import saccade.torch


class Net(torch.nn.Module):
    """Weights that are packed, one that is read as it is, small and large buffers, and a tied weight."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4)
        self.first, self.second = torch.nn.Linear(64, 96), torch.nn.Linear(96, 64)
        self.tied = torch.nn.Linear(64, 96)
        self.tied.weight = self.first.weight
        self.wide = torch.nn.BatchNorm1d(96)
        self.register_buffer("offset", torch.randn(96))
        self.register_buffer("factor", torch.randn(()))

    def forward(self, x, y=None):
        x = self.norm(self.convolution(x)).flatten(1)
        x = self.second(torch.nn.functional.gelu(self.wide(self.first(x)))) * self.factor
        return self.tied(x) + self.offset


@pytest.fixture
def net():
    torch.manual_seed(4)
    return Net().eval()


X = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))


def agree(compiled, net):
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), net(X), rtol=1e-4, atol=1e-4)


def step(net):
    net(X).square().sum().backward()
    torch.optim.SGD(net.parameters(), 0.01).step()


def fused_step(kind):
    """A step that changes no version of a parameter."""

    def change(net):
        net(X).square().sum().backward()
        before = net.second.weight._version
        kind(net.parameters(), lr=0.01, fused=True).step()
        assert net.second.weight._version == before

    return change


class Foreign(torch.optim.Optimizer):
    """Writes to the memory of parameters, as optimizers of other libraries do."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for x in group["params"]:
                x.detach().numpy()[...] *= 0.9


def train(net):
    net.train()
    net(X * 3 + 1)
    net.eval()


def replace(net):
    net.second.weight = torch.nn.Parameter(torch.randn(64, 96))


def assign(net):
    net.load_state_dict(Net().state_dict(), assign=True)
    net.tied.weight = net.first.weight


def other_memory(net):
    net.first.weight.data = torch.randn(96, 64)


def write(name):
    def change(net):
        with torch.no_grad():
            net.get_parameter(name).mul_(-0.5) if "." in name else net.get_buffer(name).mul_(-0.5)

    return change


CHANGES = {
    "step of an optimizer": step,
    "fused Adam": fused_step(torch.optim.Adam),
    "fused AdamW": fused_step(torch.optim.AdamW),
    "fused SGD": fused_step(torch.optim.SGD),
    "fused Adagrad": fused_step(torch.optim.Adagrad),
    "optimizer of another library": lambda net: Foreign(net.parameters()).step(),
    "statistics of training": train,
    "loaded state": lambda net: net.load_state_dict(Net().state_dict()),
    "assigned state": lambda net: assign(net),
    "another parameter": replace,
    "other memory": other_memory,
    "a packed weight": write("first.weight"),
    "a bias": write("tied.bias"),
    "a small buffer": write("factor"),
    "a large buffer": write("offset"),
    "float16 and back": lambda net: net.half().float(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_weight_changes_the_result(net, name):
    compiled = saccade.torch.compile(net, (X,))
    agree(compiled, net)
    before = compiled(X)
    CHANGES[name](net)
    agree(compiled, net)
    assert not torch.equal(compiled(X), before)


@pytest.mark.parametrize("size", [4, 96])
def test_statistics_without_a_counter_are_those_of_the_call(size):
    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(size))
            self.register_buffer("variance", torch.ones(size))

        def forward(self, x):
            return torch.nn.functional.batch_norm(x, self.mean, self.variance, training=self.training)

    norm, x = Norm().eval(), torch.randn(5, size)
    compiled = saccade.torch.compile(norm, (x,))
    norm.train()(x * 3 + 2)
    torch.testing.assert_close(compiled(x), norm.eval()(x))


def test_a_step_of_other_parameters_packs_nothing_again(net):
    compiled = saccade.torch.compile(net, (X,))
    step(Net())
    assert not compiled.main._weights.watched.is_changed()


def test_any_changes_one_after_another(net):
    compiled = saccade.torch.compile(net, (X,))
    for change in [*CHANGES.values(), *reversed(CHANGES.values())]:
        change(net)
        agree(compiled, net)


def test_an_exported_program_follows_its_tensors(net):
    compiled = saccade.torch.compile(torch.export.export(net, (X,)))
    for change in (step, write("factor"), write("offset"), other_memory):
        change(net)
        agree(compiled, net)


def test_unchanged_weights_are_packed_once(net, monkeypatch):
    compiled = saccade.torch.compile(net, (X,))
    monkeypatch.setattr(type(compiled.main._weights), "update", None)
    monkeypatch.setattr(type(compiled), "_compile_again", None)
    for _ in range(3):
        compiled(X)


@pytest.mark.parametrize(("name", "size"), [("first.weight", 0), ("first.weight", 8), ("tied.bias", 0), ("factor", 0)])
def test_freed_storage_is_refused_by_name(net, name, size):
    compiled = saccade.torch.compile(net, (X,))
    freed = dict([*net.named_parameters(), *net.named_buffers()])[name]
    freed.untyped_storage().resize_(size)
    refused(ValueError, [f"{name} has a storage of {size} bytes", "freed"], compiled, X)
    freed.untyped_storage().resize_(freed.numel() * 4)
    with torch.no_grad():
        freed.fill_(0.5)
    agree(compiled, net)


def test_a_tied_weight_that_becomes_two_is_refused_by_name(net):
    compiled = saccade.torch.compile(net, (X,))
    net.tied.weight = torch.nn.Parameter(torch.randn(96, 64))
    refused(ValueError, ["first.weight and tied.weight were one tensor", "compile again"], compiled, X)
    net.tied.weight = net.first.weight
    agree(compiled, net)


def test_weights_of_another_type_or_shape_are_refused_by_name(net):
    compiled = saccade.torch.compile(net, (X,))
    net.second.half()
    refused(TypeError, ["second.weight has element type float16, expected float32"], compiled, X)
    net.second.float()
    agree(compiled, net)
    net.second.weight.data = torch.randn(64, 95)
    refused(ValueError, ["second.weight has shape (64, 95), expected (64, 96)"], compiled, X)
    net.second.weight.data = torch.randn(64, 96)
    net.norm.double()
    refused(TypeError, ["norm.weight has element type float64, expected float32"], compiled, X)
    net.norm.float()
    net.factor = net.factor.double()
    refused(ValueError, ["factor", "torch.float64", "expected torch.float32"], compiled, X)


def test_calls_at_once_while_an_optimizer_steps(net):
    compiled, failed = saccade.torch.compile(net, (X,)), []

    def work():
        try:
            for _ in range(40):
                assert compiled(X).isfinite().all()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        other_memory(net)
        replace(net)
    for thread in threads:
        thread.join()
    assert not failed
    agree(compiled, net)


# --- arguments --------------------------------------------------------------------------------------------------------


class Takes(torch.nn.Module):
    def forward(self, x, pair, *, flag=True, bias=None):
        x = x + pair[0] - pair["b"] if isinstance(pair, dict) else x + pair[0] * pair[1]
        return x if bias is None else x + bias


ARGUMENTS = [
    ((), {}, ["0 positional", "expected 2 positional", "x, a tuple", "bias="]),
    ((X,), {"bias": X}, ["1 positional, bias=", "expected 2 positional and 1 by name: x, a tuple, bias="]),
    ((X, (X, X), X), {"bias": X}, ["3 positional", "expected 2 positional"]),
    ((X, (X, X)), {}, ["2 positional, expected 2 positional and 1 by name"]),
    ((X, (X, X)), {"bais": X}, ["bais=", "bias="]),
    ((X, [X, X]), {"bias": X}, ["args[1] is a list of 2, expected a tuple of 2"]),
    ((X, (X,)), {"bias": X}, ["args[1] is a tuple of 1, expected a tuple of 2"]),
    (((X,), (X, X)), {"bias": X}, ["args[0] is a tuple of 1, expected a tensor (x)"]),
    ((X, {"a": X}), {"bias": X}, ["args[1] is a dict of a, expected a tuple of 2"]),
    ((X, (X, X)), {"bias": (X,)}, ["bias= is a tuple of 1, expected a tensor (bias)"]),
    ((X, (X, 3)), {"bias": X}, ["pair_1 is an int, expected a torch CPU tensor"]),
]  # fmt: skip


@pytest.mark.parametrize(("args", "kwargs", "words"), ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_arguments_that_do_not_fit_are_named_as_the_caller_wrote_them(args, kwargs, words):
    compiled = saccade.torch.compile(Takes(), (X, (X, X)), {"bias": X})
    error = refused(TypeError, words, compiled, *args, **kwargs)
    assert "TreeSpec" not in str(error)
    assert "LeafSpec" not in str(error)


def test_a_fixed_argument_that_differs_is_named():
    compiled = saccade.torch.compile(Takes(), (X, (X, X)), {"flag": False, "bias": X})
    refused(TypeError, ["kwargs['flag'] is True, expected False as exported"], compiled, X, (X, X), flag=True, bias=X)
