"""Calls a library whose tile instructions and vpdpbssd the handler executes: a command for `saccade-run --runner`.

usage: trap_tiles.py [--without=NAME | --double-stride] SACCADE-CALL-TILES LIBRARY ARGUMENTS...

Every such instruction of a copy of LIBRARY gets VEX.W = 1, which makes it undefined on every processor; so do new first bytes
CPUID and XGETBV, from which the handler's processor differs. All else is the code of the library. Two options plant mistakes:
instructions NAME are left out, or strides of loads are doubled.
"""

import os
import pathlib
import re
import struct
import subprocess
import sys

UNDEFINED = 0x06  # replacedFirstByte in Handler.h
SINGLE_BYTE_NOP = 0x90


def instructions(library):
    """Addresses, lengths and names of the instructions that the handler executes."""
    text = subprocess.run(["llvm-objdump", "-d", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    line = r"^\s*([0-9a-f]+):((?: [0-9a-f]{2})+)\s+(\w*tile\w*|tdp\w+|vpdpbssd|cpuid|xgetbv)\b"
    return [(int(address, 16), len(code.split()), name) for address, code, name in re.findall(line, text, re.M)]


def segments(content):
    """Address, place in the file and size of the loaded segments of an ELF file."""
    (table,), (size, count) = struct.unpack_from("<Q", content, 32), struct.unpack_from("<HH", content, 54)
    for i in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", content, table + i * size)
        if kind == 1:
            yield address, offset, length


def trap(library, without=None, double_stride=False):
    """The content of the library with instructions that trap."""
    content = bytearray(pathlib.Path(library).read_bytes())
    loaded = list(segments(content))
    for address, length, name in instructions(library):
        at = next(offset + address - begin for begin, offset, size in loaded if begin <= address < begin + size)
        if name == without:
            content[at : at + length] = bytes([SINGLE_BYTE_NOP]) * length
        elif name in ("cpuid", "xgetbv"):
            assert content[at] == 0x0F
            content[at] = UNDEFINED
        else:
            assert content[at] == 0xC4 and content[at + 2] & 0x80 == 0, f"{name} at {address:#x}"
            content[at + 2] |= 0x80
            if double_stride and name == "tileloadd":
                content[at + 5] ^= 0x40  # the scale of the index
    return content


def main(options, call, library, *arguments):
    planted = {option[2:].partition("=")[0].replace("-", "_"): option.partition("=")[2] or True for option in options}
    trapped = pathlib.Path(f"{library}.trapped")
    trapped.write_bytes(trap(library, **planted))
    os.execv(call, [call, trapped, *arguments])


if __name__ == "__main__":
    planted = [word for word in sys.argv[1:] if word.startswith("--")]
    main(planted, *sys.argv[1 + len(planted) :])
