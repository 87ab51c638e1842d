"""The control flow of a disassembled kernel, and the instructions on the path of a full tile through its main loop."""

import dataclasses
import math
import re

# Classes of instructions by the start of the opcode, as nvdisasm prints it. The first match counts.
CLASSES = [
    ("HMMA", r"HMMA|HGMMA"),
    ("MUFU", r"MUFU"),
    ("FP32", r"FFMA|FADD|FMUL|FMNMX|FSEL|FSETP|FSET|FCHK|F2FP|HFMA2|HADD2"),
    ("LDS", r"LDSM|LDS|STS|STSM"),
    ("LDG", r"LDG(?!DEPBAR)|LDGSTS|STG|ATOMG|LDC|LDL|STL|UTMALDG"),
    ("control", r"BRA|BSSY|BSYNC|BREAK|BAR|ARRIVES|EXIT|RET|CALL|NOP|WARPSYNC|WARPGROUP|LDGDEPBAR|DEPBAR|SYNCS|FENCE|YIELD|BRX|"
                r"ENDCOLLECTIVE|ERRBAR|MEMBAR|USETMAXREG|CCTL"),
    ("SHFL", r"SHFL|REDUX|VOTE|VOTEU|R2UR|ELECT"),
    ("integer", r"IMAD|IADD3|IADD|ISETP|LEA|LOP3|SHF|SEL|PRMT|MOV|CS2R|S2R|S2UR|R2P|P2R|PLOP3|IMNMX|VIMNMX|VIADD|VIADDMNMX|I2F|"
                r"I2FP|F2I|SGXT|IABS|FLO|POPC|BMSK|U[A-Z0-9]+|LOP|IDP|NANOSLEEP|LEPC"),
]  # fmt: skip
COPIES = ("LDGSTS",)


@dataclasses.dataclass(frozen=True)
class Instruction:
    opcode: str
    is_predicated: bool
    target: str | None  # the label of a branch
    operands: str = ""

    def category(self):
        for name, pattern in CLASSES:
            if re.fullmatch(pattern, self.opcode):
                return name
        raise ValueError(f"unknown instruction {self.opcode}")


def parse(text, kernel):
    """The basic blocks of a kernel as [(instructions, indices of successors)]."""
    body = text.split(f".text.{kernel}:\n", 1)[1].split("//-----", 1)[0]
    blocks, starts = [[]], {}
    for line in body.splitlines():
        if label := re.match(r"(\.L_x?_?\d+):", line.strip()):
            if blocks[-1]:
                blocks.append([])
            starts[label[1]] = len(blocks) - 1
        found = re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][A-Z0-9]*)(.*);", line)
        if not found:
            continue
        branch = re.search(r"`\((\.L_x?_?\d+)\)", found[3]) if found[2] == "BRA" else None
        # BRA P0, label: a branch with a second predicate.
        is_predicated = bool(found[1]) or bool(re.search(r"\bU?P\d\b", found[3]) and found[2] == "BRA")
        blocks[-1].append(Instruction(found[2], is_predicated, branch and branch[1], found[3]))
        if found[2] in ("BRA", "EXIT", "RET", "BRX"):
            blocks.append([])
    return [(block, successors(block, i, starts)) for i, block in enumerate(blocks)]


def successors(block, index, starts):
    if not block:
        return [index + 1] if index + 1 in starts.values() else []
    last = block[-1]
    falls_through = last.opcode not in ("BRA", "EXIT", "RET", "BRX") or last.is_predicated
    return [index + 1] * falls_through + ([starts[last.target]] if last.target else [])


def components(edges, nodes):
    """Strongly connected components of a graph, successors first (Tarjan 1972)."""
    order, low, stack, found = {}, {}, [], []
    for root in nodes:
        work = [(root, iter(edges[root]))] if root not in order else []
        while work:
            node, rest = work[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
            for after in rest:
                if after not in nodes:
                    continue
                if after not in order:
                    work.append((after, iter(edges[after])))
                    break
                if after in stack:
                    low[node] = min(low[node], order[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component = set(stack[stack.index(node):])
                    del stack[stack.index(node):]
                    found.append(component)
    return found


def header_of(edges, loop):
    """The node of a loop that edges from outside lead to."""
    entries = {after for node, next_nodes in enumerate(edges) if node not in loop for after in next_nodes if after in loop}
    if len(entries) != 1:
        raise ValueError(f"a loop with {len(entries)} entries")
    return entries.pop()


def loops_with_products(blocks, nodes, edges):
    """The loops with products in a graph, inner ones first."""
    for loop in components(edges, nodes):
        is_loop = len(loop) > 1 or any(node in edges[node] for node in loop)
        if not is_loop or not any(each.category() == "HMMA" for node in loop for each in blocks[node][0]):
            continue
        header = header_of([after for _, after in blocks], loop)
        yield from loops_with_products(blocks, loop, without_edges_to(edges, {header}))
        yield loop


def without_edges_to(edges, nodes):
    return [[after for after in next_nodes if after not in nodes] for next_nodes in edges]


def back_edges(blocks, nodes, edges):
    """The edges of a graph that lead from a loop to its header."""
    for loop in components(edges, nodes):
        if len(loop) > 1 or any(node in edges[node] for node in loop):
            header = header_of([after for _, after in blocks], loop)
            yield from ((node, header) for node in loop if header in edges[node])
            yield from back_edges(blocks, loop, without_edges_to(edges, {header}))


def best_path(blocks, loop):
    """The instructions of the path of an iteration with the most products, then copies, then the fewest others. Loops
    inside of it are passed once."""
    edges = [after for _, after in blocks]
    header = header_of(edges, loop)

    def value(instructions):
        categories = [each.category() for each in instructions]
        return (categories.count("HMMA"), sum(each.opcode in COPIES for each in instructions), -len(instructions))

    inside = [[after for after in edges[node] if after in loop] if node in loop else [] for node in range(len(blocks))]
    repeats = set(back_edges(blocks, loop, inside))
    inner = [[after for after in inside[node] if (node, after) not in repeats] for node in range(len(blocks))]
    best = {}
    for (node,) in components(inner, loop):
        ends = [best[after] for after in inner[node] if after in best]
        if (node, header) in repeats:
            ends.append(((0, 0, 0), []))
        if not ends:
            continue
        rest_value, rest = max(ends, key=lambda end: end[0])
        instructions = blocks[node][0]
        best[node] = (tuple(x + y for x, y in zip(value(instructions), rest_value)), instructions + rest)
    return best[header]


def main_loop(text, kernel, products=math.inf):
    """The instructions of a full tile in the innermost loop of a kernel with the most products in an iteration, but not more
    than `products`: a loop over work items, around that over tiles, has those of its first or last tile too."""
    blocks = parse(text, kernel)
    loops = loops_with_products(blocks, set(range(len(blocks))), [after for _, after in blocks])
    found = [best_path(blocks, loop) for loop in loops]
    _, path = max((each for each in found if each[0][0] <= products), key=lambda each: each[0][0])
    return path


def count_classes(path):
    """{class: instructions}"""
    counts = {name: 0 for name, _ in CLASSES}
    for instruction in path:
        counts[instruction.category()] += 1
    return counts


def count_in_flight(path):
    """[{class: instructions}] between the last wgmma of each product that an iteration starts, and the wait for it, which may
    be in the next iteration."""
    pending, complete = [], {}
    for i, instruction in enumerate(path + path):
        if instruction.opcode == "HGMMA" and "gsb0" in instruction.operands:
            pending.append(i)
        elif instruction.opcode == "WARPGROUP" and (wait := re.search(r"DEPBAR\.LE gsb0, 0x([0-9a-f]+)", instruction.operands)):
            while len(pending) > int(wait[1], 16):
                start = pending.pop(0)
                complete[start] = count_classes((path + path)[start + 1:i])
    return [complete[start] for start in sorted(complete) if start < len(path)]


def resources(log, kernel):
    """Registers and bytes of spill stores and loads in the output of `ptxas -v`."""
    part = log.split(f"Function properties for {kernel}\n", 1)[1]
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
    return {"registers": int(re.search(r"Used (\d+) registers", part)[1]),
            "spilled bytes": int(spills[1]) + int(spills[2])}  # fmt: skip
