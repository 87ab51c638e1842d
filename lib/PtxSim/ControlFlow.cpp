//===- ControlFlow.cpp - Reconvergence points of branches -----------------===//

#include "Syntax.h"
#include <algorithm>
#include <functional>

using namespace saccade::ptxsim;

namespace {

/// Control-flow graph of a function; the last block is a virtual exit.
struct Graph {
  std::vector<unsigned> firsts; ///< first instruction of each block
  std::vector<std::vector<unsigned>> successors, predecessors;
};

bool endsLane(const Instruction &instruction) {
  return instruction.mnemonic == "ret" || instruction.mnemonic == "exit" || instruction.mnemonic == "trap";
}

std::vector<unsigned> targets(const Function &function, const Instruction &instruction) {
  std::vector<unsigned> found;
  auto add = [&](const std::string &label) {
    if (auto target = function.findLabel(label, instruction.scope))
      found.push_back(*target);
  };
  if (instruction.mnemonic == "bra" && !instruction.operands.empty())
    add(instruction.operands[0].name);
  if (instruction.mnemonic == "brx" && instruction.operands.size() > 1)
    if (auto list = function.branchTargets.find(instruction.operands[1].name); list != function.branchTargets.end())
      for (const std::string &label : list->second)
        add(label);
  return found;
}

Graph buildGraph(const Function &function) {
  const auto &code = function.instructions;
  std::vector<bool> leads(code.size() + 1);
  leads[0] = true;
  for (unsigned index = 0; index < code.size(); ++index) {
    bool branches = code[index].mnemonic == "bra" || code[index].mnemonic == "brx";
    for (unsigned target : targets(function, code[index]))
      leads[target] = true;
    if (branches || endsLane(code[index]))
      leads[index + 1] = true;
  }
  Graph graph;
  std::vector<unsigned> blockOf(code.size() + 1);
  for (unsigned index = 0; index < code.size(); ++index) {
    if (leads[index])
      graph.firsts.push_back(index);
    blockOf[index] = graph.firsts.size() - 1;
  }
  unsigned end = graph.firsts.size();
  blockOf[code.size()] = end;
  graph.firsts.push_back(code.size());
  graph.successors.resize(end + 1);
  graph.predecessors.resize(end + 1);
  for (unsigned block = 0; block < end; ++block) {
    unsigned last = graph.firsts[block + 1] - 1;
    auto link = [&](unsigned target) {
      graph.successors[block].push_back(target);
      graph.predecessors[target].push_back(block);
    };
    for (unsigned target : targets(function, code[last]))
      link(blockOf[target]);
    bool jumps = code[last].mnemonic == "bra" || code[last].mnemonic == "brx";
    if (endsLane(code[last]))
      link(end);
    if ((!jumps && !endsLane(code[last])) || code[last].guard >= 0)
      link(blockOf[last + 1]);
  }
  return graph;
}

} // namespace

std::vector<unsigned> saccade::ptxsim::reconvergencePoints(const Function &function) {
  Graph graph = buildGraph(function);
  unsigned end = graph.firsts.size() - 1, none = ~0u;
  // Post-order numbers of the reversed graph; the exit has the highest.
  std::vector<unsigned> order, number(end + 1, none);
  std::vector<bool> seen(end + 1);
  std::vector<std::pair<unsigned, unsigned>> stack = {{end, 0}};
  seen[end] = true;
  while (!stack.empty()) {
    auto &[block, child] = stack.back();
    if (child < graph.predecessors[block].size()) {
      unsigned next = graph.predecessors[block][child++];
      if (!seen[next]) {
        seen[next] = true;
        stack.push_back({next, 0});
      }
    } else {
      number[block] = order.size();
      order.push_back(block);
      stack.pop_back();
    }
  }
  std::vector<unsigned> dominator(end + 1, none);
  dominator[end] = end;
  auto commonPostDominator = [&](unsigned a, unsigned b) {
    while (a != b) {
      while (number[a] < number[b])
        a = dominator[a];
      while (number[b] < number[a])
        b = dominator[b];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (unsigned index = order.size() - 1; index-- > 0;) {
      unsigned block = order[index], found = none;
      for (unsigned successor : graph.successors[block])
        if (dominator[successor] != none)
          found = found == none ? successor : commonPostDominator(found, successor);
      if (found != dominator[block]) {
        dominator[block] = found;
        changed = true;
      }
    }
  }
  std::vector<unsigned> points(function.instructions.size(), function.instructions.size());
  for (unsigned block = 0; block < end; ++block)
    if (dominator[block] != none)
      points[graph.firsts[block + 1] - 1] = graph.firsts[dominator[block]];
  return points;
}
