"""saccade.torch.cache: tensors of zeros in large pages of memory."""

import mmap

import pytest

torch = pytest.importorskip("torch")

import saccade.torch


def large_bytes(address):
    """What the mapping of an address has in large pages, and whether it asks for them."""
    found, fields = False, {}
    with open("/proc/self/smaps") as lines:
        for line in lines:
            first, *rest = line.split()
            if "-" in first and not first.endswith(":"):
                begin, end = (int(part, 16) for part in first.split("-"))
                found = begin <= address < end
            elif found:
                fields[first] = rest
    return int(fields["AnonHugePages:"][0]) * 1024, "hg" in fields["VmFlags:"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float64])
def test_it_is_zeros(dtype):
    for shape in ((2, 3, 700, 1024), (5, 4), (0, 7), ()):
        made = saccade.torch.cache(*shape, dtype=dtype)
        assert made.shape == shape and made.dtype == dtype and made.is_contiguous() and made.device.type == "cpu"
        assert not made.view(torch.uint8).any() if made.dim() else made == 0
        made.view(torch.uint8).fill_(1) if made.dim() else None
    assert saccade.torch.cache((3, 4)).shape == (3, 4) == saccade.torch.cache(torch.Size([3, 4])).shape
    assert saccade.torch.cache(3, 1 << 20, device="meta").device.type == "meta"


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="needs large pages")
def test_memory_is_in_large_pages():
    made = saccade.torch.cache(8, 1 << 20)
    assert made.data_ptr() % (2 << 20) == 0
    made.fill_(1)
    size, asks = large_bytes(made.data_ptr())
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
        is_off = "[never]" in file.read()
    assert asks and (is_off or size >= 8 << 20)


def test_views_keep_the_memory():
    keys, values = saccade.torch.cache(2, 2, 4096, 2, 64)
    before = torch.randn(2, 4096, 2, 64)
    keys.copy_(before)
    del values
    for _ in range(20):
        saccade.torch.cache(2, 1 << 20).fill_(7)
    assert torch.equal(keys, before)


def test_a_cache_is_updated_in_place():
    cache = saccade.torch.cache(2, 2, 2048, 2, 64)
    plain = torch.zeros(2, 2, 2048, 2, 64)
    q, k, v = (torch.randn(2, 5, heads, 64) for heads in (4, 2, 2))
    lengths = torch.tensor([3, 2000])
    found, expected = (saccade.torch.flash_attn_with_kvcache(q, *each, k, v, cache_seqlens=lengths, causal=True) for each in (cache, plain))
    assert torch.equal(found, expected) and torch.equal(cache, plain) and bool((cache[0, 0, 3] == k[0, 0]).all())


@pytest.mark.parametrize(("shape", "error"), [((-1, 4), RuntimeError), ((2.5,), TypeError), (("a",), TypeError)])
def test_extents_are_tested(shape, error):
    with pytest.raises(error):
        saccade.torch.cache(*shape)
