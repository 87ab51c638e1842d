"""`saccade.profile`: times, work, memory and compilations of calls, as a table, JSON and a trace."""

import json
import mmap
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import programs
import small_models
import torch.nn.functional as F

import saccade
import saccade.torch
import saccade.transformers
from saccade.profiling import counters, machine, memory, work

q, k, v = torch.randn(3, 2, 3, 20, 16, generator=torch.Generator().manual_seed(0))
pytestmark = pytest.mark.usefixtures("no_grad")


def row_of(call):
    """The only row of a profile of `call`."""
    with saccade.profile() as record:
        call()
    (row,) = record.rows
    return row


def test_rows_name_equal_calls_by_module_and_place():
    class Layer(torch.nn.Module):
        def forward(self, x):
            return saccade.attention(x, x, x)

    model = torch.nn.Sequential(Layer(), Layer())
    with saccade.profile() as record:
        for _ in range(5):
            model(q)
        saccade.attention(q.numpy(), k.numpy(), v.numpy())
    first, second, third = record.rows
    assert [row.calls for row in record.rows] == [5, 5, 1]
    assert (first.module, second.module, third.module) == ("0", "1", "")
    line = Layer.forward.__code__.co_firstlineno + 1
    assert first.place == second.place == f"{__file__}:{line}"
    assert first.operands == "f32 cpu q[2,3,20,16] k[2,3,20,16] v[2,3,20,16]"
    text = str(record)
    assert "profile: 11 calls" in text and first.place in text and "tokens/s" in text


MASK = torch.rand(2, 1, 20, 20, generator=torch.Generator().manual_seed(1)) < 0.3
ADDED = torch.zeros(3, 20, 20).masked_fill(torch.rand(3, 20, 20, generator=torch.Generator().manual_seed(2)) < 0.5,
                                           float("-inf"))
I, J = np.mgrid[:20, :20]
VISIBLE = {
    "all": (lambda: saccade.attention(q, k, v), 2 * 3 * 400),
    "top left": (lambda: saccade.attention(q, k, v, causal="top_left"), 2 * 3 * (J <= I).sum()),
    "offset": (lambda: saccade.attention(q, k, v, causal=3), 2 * 3 * (J <= I + 3).sum()),
    "bottom right": (lambda: saccade.attention(q[:, :, :7].contiguous(), k, v, causal="bottom_right"),
                     2 * 3 * (J <= I + 13)[:7].sum()),
    "window": (lambda: saccade.attention(q, k, v, window=5), 2 * 3 * ((J <= I) & (J > I - 5)).sum()),
    "open window": (lambda: saccade.attention(q, k, v, window=(2, None)), 2 * 3 * (J >= I - 2).sum()),
    "causal window": (lambda: saccade.attention(q, k, v, window=(2, 4), causal="top_left"),
                      2 * 3 * ((J >= I - 2) & (J <= I)).sum()),
    "length": (lambda: saccade.attention(q, k, v, kv_len=9), 2 * 3 * 20 * 9),
    "lengths": (lambda: saccade.attention(q, k, v, kv_len=torch.tensor([9, 20])), 3 * 20 * 29),
    "lengths, bottom right": (lambda: saccade.attention(q, k, v, kv_len=torch.tensor([9, 20]), causal="bottom_right"),
                              3 * ((J <= I - 11)[:, :9].sum() + (J <= I).sum())),
    "ragged": (lambda: saccade.attention(*(x[0].transpose(0, 1).contiguous() for x in (q, k, v)), causal="top_left",
                                         cu_seqlens_q=torch.tensor([0, 5, 20]), cu_seqlens_k=torch.tensor([0, 8, 20])),
               3 * ((J <= I)[:5, :8].sum() + (J <= I)[:15, :12].sum())),
    "mask": (lambda: saccade.attention(q, k, v, mask=saccade.masks.window(2, 1)),
             2 * 3 * ((J >= I - 2) & (J <= I + 1)).sum()),
    "mask, NaN in queries": (lambda: saccade.attention(q * float("nan"), k, v, mask=lambda b, h, i, j: j <= i),
                             2 * 3 * (J <= I).sum()),
    "mask of NumPy, empty rows": (lambda: saccade.attention(q.numpy(), k.numpy(), v.numpy(),
                                                            mask=lambda b, h, i, j: (j < i) & (b == 0), causal=-3),
                                  3 * (J <= I - 3).sum()),
    "mask of sequences": (lambda: saccade.attention(
        *(x[0].transpose(0, 1).contiguous() for x in (q, k, v)), mask=lambda b, h, i, j: j <= i,
        cu_seqlens_q=torch.tensor([0, 5, 20]), cu_seqlens_k=torch.tensor([0, 8, 20])),
                          3 * ((J <= I)[:5, :8].sum() + (J <= I)[:15, :12].sum())),
    "booleans": (lambda: saccade.torch.scaled_dot_product_attention(q, k, v, MASK), 3 * int(MASK.sum())),
    "infinities": (lambda: saccade.torch.scaled_dot_product_attention(q, k, v, ADDED), 2 * int((ADDED == 0).sum())),
    "is_causal": (lambda: saccade.torch.scaled_dot_product_attention(q, k, v, is_causal=True),
                  2 * 3 * (J <= I).sum()),
}  # fmt: skip


@pytest.mark.parametrize("name", VISIBLE)
def test_work_counts_visible_pairs(name):
    call, pairs = VISIBLE[name]
    row = row_of(call)
    assert row.work.flops == int(pairs) * 2 * (16 + 16)


def test_work_of_a_call():
    keys = k[:, :1, :12].contiguous()
    values = torch.randn(2, 1, 12, 8)
    row = row_of(lambda: saccade.attention(q, keys, values, causal="top_left"))
    pairs = 2 * 3 * int((J <= I)[:, :12].sum())
    assert row.work == work.Work(pairs * 2 * 24, 2 * 3 * 20 * 12 * 2 * 24,
                                 4 * (2 * 3 * 20 * 16 + 2 * 12 * 16 + 2 * 12 * 8 + 2 * 3 * 20 * 8), 40)
    assert row.intensity == row.work.flops / row.work.bytes
    assert row.tokens_per_second == pytest.approx(40 / row.percentile(50))


def test_functions_that_mask_are_counted_once_for_a_row(monkeypatch):
    counted = []
    original = work._counted
    monkeypatch.setattr(work, "_counted", lambda *given: counted.append(1) or original(*given))
    saccade.cache_clear()
    with saccade.profile() as record:
        for _ in range(3):
            saccade.attention(q, k, v, mask=lambda b, h, i, j: (i + j) % 2 == h % 2, kv_len=11, layout="bhsd")
    (row,) = record.rows
    expected = sum((h % 2 == (I + J) % 2)[:, :11].sum() for h in range(3))
    assert row.work.flops == 2 * int(expected) * 64 and len(counted) == 1
    assert [event.name for event in record.events if event.kind == "compilation"] == ["attention"]


def test_enabled_functions_and_models_are_timed():
    model = small_models.MODELS["bert"]()
    model.set_attn_implementation("saccade")
    with saccade.torch.enabled(), saccade.profile() as record:
        F.scaled_dot_product_attention(q, k, v, is_causal=True)
        model(**small_models.inputs_of("bert", 2, 16))
    first, *layers = record.rows
    assert first.work.flops == 2 * 3 * 210 * 64
    assert [row.module for row in layers] == [f"encoder.layer.{i}.attention.self" for i in (0, 1)]
    assert layers[0].work.flops == (16 + 10) * 16 * 4 * 64  # the last sequence has 10 tokens


def test_percentiles_are_of_the_calls_and_their_sample_is_bounded():
    from saccade.profiling import record

    row = record.Row("", "", "", "", "")
    for i in range(100, 0, -1):
        row.add(i, None)
    assert [row.percentile(p) for p in (0, 1, 50, 90, 99, 100)] == [1, 1, 50, 90, 99, 100]
    for i in range(20_000):
        row.add(1000 + i % 7, None)
    assert len(row._latencies) == record.KEPT_LATENCIES and row.calls == 20_100
    assert 1000 <= row.percentile(50) <= 1006


def test_latencies_are_those_of_the_calls():
    with saccade.profile() as record:
        saccade._served.observe("slow", lambda: time.sleep(0.05), (q, k, v), arguments=((), {}))
    (row,) = record.rows
    assert 0.05 <= row.percentile(50) < 1 and record.seconds >= row.seconds


def test_compilations_are_listed_and_no_part_of_latencies():
    saccade.cache_clear()
    with saccade.profile() as record:
        saccade.attention(q, k, v)
        saccade.compile(programs.attention())
        saccade.compile(programs.attention())
    found = [event for event in record.events if event.kind == "compilation"]
    assert [(event.name, event.details["origin"]) for event in found] == [
        ("attention", "compiled"), ("attend", "compiled"), ("attend", "cache hit")]
    (row,) = record.rows
    whole = next(event for event in record.events if event.kind == "attention")
    assert whole.start <= found[0].start <= found[0].end <= whole.end
    assert row.seconds == pytest.approx((whole.end - whole.start - found[0].end + found[0].start) * 1e-9)
    assert "for 3 programs, 2 compiled and 1 from a cache" in str(record)
    for event in found[:2]:
        phases = [event.details[name] for name in ("pipeline", "codegen", "link")]
        assert min(phases) > 0 and sum(phases) * 1e9 < event.end - event.start
        stages = event.details["stages"]
        assert list(stages) == ["import", "transforms", "schedule", "tiling", "bufferize", "codegen", "target"]
        assert 0 < sum(stages.values()) <= event.details["pipeline"]
    assert found[2].details == {"origin": "cache hit"}


def test_calls_of_programs_are_timed():
    function = saccade.compile(programs.attention()).attend
    with saccade.profile() as record:
        function(q, k, v)
        function(q.numpy(), k.numpy(), v.numpy())
    assert [(row.function, row.calls, row.work) for row in record.rows] == [("attend", 1, None)] * 2


def test_tasks_of_calls_are_timed(tmp_path):
    """Of programs and of `saccade.attention`, with their shares of the latencies; not after the block."""
    program = saccade.compile("""
        func.func @twice(%x: tensor<64x32xf32>, %w: tensor<32x32xf32>) -> tensor<64x32xf32> {
          %zero = arith.constant 0.0 : f32
          %empty = tensor.empty() : tensor<64x32xf32>
          %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x32xf32>) -> tensor<64x32xf32>
          %y = linalg.matmul ins(%x, %w : tensor<64x32xf32>, tensor<32x32xf32>) outs(%init : tensor<64x32xf32>) -> tensor<64x32xf32>
          %o = attn.attention %y[s,d], %x[s,d], %x[s,d]
            : (tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x32xf32>) -> tensor<64x32xf32>
          return %o : tensor<64x32xf32>
        }""")
    x, w = np.ones((64, 32), np.float32), np.ones((32, 32), np.float32)
    before = program.ir("asm")
    with saccade.profile() as record:
        for _ in range(3):
            program.twice(x, w)
        saccade.attention(q, k, v)
        with saccade.profile() as inner:
            saccade.attention(q, k, v)
    program.twice(x, w)
    of_program, of_attention = record.rows[0], record.rows[1]
    launches = {task.name: task.launches for task in of_program.tasks}
    assert launches["twice.attention"] == 3 and launches["twice.matmul"] == 3, launches
    assert all(task.name.endswith((".attention", ".attention.split_kv", ".attention.merge")) for task in of_attention.tasks)
    assert [task.seconds for task in record.tasks] == sorted((task.seconds for task in record.tasks), reverse=True)
    assert 0 < sum(task.seconds for task in of_program.tasks) < of_program.seconds
    assert sum(task.launches for task in record.tasks) == len(record.launches)
    assert inner.tasks and [task[:2] for task in inner.rows[0].tasks] == [task[:2] for task in record.rows[2].tasks]
    assert program.ir("asm") == before
    text = str(record)
    assert "us a launch" in text and "twice.matmul" in text
    record.json(tmp_path / "numbers.json")
    (first, *_) = json.loads((tmp_path / "numbers.json").read_text())["rows"]
    assert {task["name"]: task["launches"] for task in first["tasks"]} == launches
    record.trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    calls, tasks = ([event for event in events if event["cat"] == kind] for kind in ("program", "task"))
    inside = [task for task in tasks if task["name"].startswith("twice.")]
    assert len(inside) == sum(launches.values())
    for task in inside:
        assert any(call["ts"] <= task["ts"] and task["ts"] + task["dur"] <= call["ts"] + call["dur"] + 1e-3
                   and call["tid"] == task["tid"] for call in calls)  # fmt: skip


def test_a_call_that_fails_leaves_no_timer():
    with saccade.profile() as record:
        with pytest.raises(ValueError, match="head"):
            saccade.attention(q, k[..., :8], v)
        saccade.attention(q, k, v)
    assert record.rows[-1].tasks
    with saccade.profile() as later:
        saccade.attention(q, k, v)
    assert sum(task.launches for task in later.tasks) == len(later.launches) > 0


def test_peak_memory_is_that_of_the_block():
    if memory.status("VmHWM") is None or not memory.reset_peak():
        pytest.skip("this system does not reset the peak of the resident memory")

    def touch(size):
        with mmap.mmap(-1, size) as pages:  # pages of its own: an allocator may have free ones that are resident
            for _ in range(size >> 20):
                pages.write(b"x" * (1 << 20))

    touch(64 << 20)  # before the block
    with saccade.profile() as record:
        touch(32 << 20)
    assert 30 << 20 < record.peak_memory < 60 << 20 and record.memory > 0
    assert "MiB at the peak" in str(record)


def test_counters_count_or_say_why_not():
    with saccade.profile() as record:
        saccade.attention(q, k, v)
    if record.counts_refusal is None:
        assert record.counts["cycles"] > record.counts["cache_misses"] >= 0 < record.counts["instructions"]
    else:
        assert not record.counts and record.counts_refusal in str(record)


def test_refused_counters_name_the_reason(monkeypatch):
    monkeypatch.setattr(counters.platform, "machine", lambda: "m68k")
    with saccade.profile() as record:
        pass
    assert record.counts_refusal.startswith("perf_event_open is not known on") and not record.counts


def test_the_roofline_bounds_by_peak_and_by_reads(monkeypatch):
    measured = machine.Machine("float32", 1e9, 1e8, 1)
    assert measured.roof(2) == 2e8 and measured.roof(50) == 1e9
    monkeypatch.setattr(machine, "measure", lambda dtype: measured)
    with saccade.profile(roofline=True) as record:
        saccade.attention(q, k, v)
    (row,) = record.rows
    assert saccade.profiling.writing.share_of_roof(record, row) == pytest.approx(
        row.flops_per_second / measured.roof(row.intensity))
    assert "machine: 1.0 GFLOP/s in float32, reads of 0.1 GB/s" in str(record)


def test_the_rates_of_the_machine_are_measured():
    measured = machine.measure()
    assert measured.dtype == "float32" and measured.peak > 1e8 and measured.read_rate > 1e8
    assert machine.measure() is measured


def test_traces_and_numbers_are_written(tmp_path):
    with saccade.profile() as record:
        for _ in range(3):
            saccade.attention(q, k, v)
    record.trace(tmp_path / "trace.json")
    record.json(tmp_path / "numbers.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    calls = [event for event in events if event["cat"] == "attention"]
    assert len(calls) == 3 and all(event["ph"] == "X" and event["dur"] > 0 for event in calls)
    assert calls[0]["ts"] < calls[1]["ts"] and calls[0]["args"]["flops"] == 2 * 3 * 400 * 64
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["rows"][0]["calls"] == 3 and numbers["rows"][0]["latency"]["p50"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["numbers.json", "trace.json"]


def test_the_roofline_is_drawn(tmp_path, monkeypatch):
    from xml.etree import ElementTree

    measured = machine.Machine("float32", 1e11, 1e10, 2)
    monkeypatch.setattr(machine, "measure", lambda dtype: measured)
    with saccade.profile(roofline=True) as record:
        saccade.attention(q, k, v)
        saccade.attention(q, k, v, window=3)
    record.roofline(tmp_path / "roofline.svg")
    root = ElementTree.parse(tmp_path / "roofline.svg").getroot()
    dots, (roof,) = root.findall("{*}circle"), root.findall("{*}polyline")
    points = [tuple(map(float, point.split(","))) for point in roof.get("points").split()]
    assert points[0][1] > points[1][1] == points[2][1] and points[0][0] < points[1][0] < points[2][0]
    assert len(dots) == 2 and float(dots[0].get("cx")) > float(dots[1].get("cx"))  # fewer FLOP for the same bytes
    for each in (*points, *[(float(dot.get("cx")), float(dot.get("cy"))) for dot in dots]):
        assert 0 <= each[0] <= 640 and 0 <= each[1] <= 400
    assert "saccade.attention f32 cpu" in dots[0].find("{*}title").text


def test_the_roofline_of_nothing_says_what_to_do(tmp_path):
    with saccade.profile() as record:
        saccade.attention(q, k, v)
    with pytest.raises(ValueError, match=r"use saccade.profile\(roofline=True\)"):
        record.roofline(tmp_path / "roofline.svg")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("old")
    with saccade.profile() as record:
        saccade.attention(q, k, v)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saccade.profiling.writing.os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        record.trace(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    for write in (record.trace, record.json):
        with pytest.raises(IsADirectoryError) as found:
            write(tmp_path)
        assert found.value.filename == str(tmp_path)


def test_a_block_without_calls_says_what_is_timed():
    with saccade.profile() as record:
        F.scaled_dot_product_attention(q, k, v)
    assert "PyTorch's own attention is timed under saccade.torch.enabled() only" in str(record)
    with saccade.profile() as record:
        saccade.attention(q, k, v)
    assert "no call was seen" not in str(record)


def test_attributes_of_the_block_name_its_record():
    with pytest.raises(AttributeError, match=r"with saccade.profile\(\) as record: ..., then record.trace"):
        saccade.profile().trace("trace.json")


def test_functions_are_timed_by_the_decorator(capsys):
    @saccade.profile(explain=True)
    def call(times):
        saccade.attention(q, k, v)
        if times > 1:
            call(times - 1)

    call(2)
    assert [line.split(" in ")[0] for line in capsys.readouterr().err.splitlines() if line.startswith("profile")] == [
        "profile: 1 calls", "profile: 2 calls"]


def test_threads_of_the_block_are_timed_and_nothing_after_it():
    with saccade.profile(explain=False) as record:
        thread = threading.Thread(target=lambda: saccade.attention(q, k, v))
        thread.start()
        thread.join()
    saccade.attention(q, k, v)
    (row,) = record.rows
    assert row.calls == 1 and record.events[-1].thread != threading.get_ident()


def test_the_table_is_printed_after_an_exception(capsys):
    with pytest.raises(ValueError, match="kv_len is 99"), saccade.profile(explain=True):
        saccade.attention(q, k, v, kv_len=99)
    assert "profile: 0 calls" in capsys.readouterr().err
