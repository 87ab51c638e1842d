//===- StagePage.cpp - The stages of a program as a page ----------------------===//
//
// MLIR numbers values anew in each stage, and stages move code, so lines are compared as multisets without numbers; a
// comparison in order would mark most lines.
//
//===----------------------------------------------------------------------===//
#include "StagePage.h"
#include "saccade/Support/OutputFile.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace saccade;
using llvm::StringRef;

static constexpr StringRef style = R"(
:root { color-scheme: light dark; --new: #2da44e55; --gone: #cf222e40; }
body { margin: 0; font: 14px system-ui, sans-serif; }
header { padding: 8px 12px; display: flex; gap: 24px; align-items: center; }
main { display: flex; height: calc(100vh - 44px); overflow-x: auto; }
details { border-left: 1px solid #8884; overflow: auto; flex: none; }
details[open] { width: 46vw; }
details:not([open]) { width: 32px; }
details:not([open]) summary { writing-mode: vertical-rl; padding: 12px 6px; }
summary { position: sticky; top: 0; left: 0; background: Canvas; padding: 6px 12px; cursor: pointer; }
pre { margin: 0; padding: 0 12px 12px; font: 12px/1.45 ui-monospace, monospace; tab-size: 2; }
i { display: block; font-style: normal; }
.new { background: var(--new); }
.gone { background: var(--gone); }
.new.gone { background: linear-gradient(90deg, var(--gone) 50%, var(--new) 50%); }
body:has(#changed:checked) .same { display: none; }
)";

/// A line without indentation and numbers: `  %12 = f %c4_1` is `% = f %c4_`.
static std::string keyOf(StringRef line) {
  std::string key;
  bool isName = false;
  for (char c : line.trim()) {
    isName = c == '%' || c == '#' || (isName && (llvm::isAlnum(c) || c == '_'));
    if (!isName || !llvm::isDigit(c))
      key += c;
  }
  return key;
}

namespace {
struct Line {
  StringRef text;
  std::string key;
  bool isNew = false, isGone = false;
};
} // namespace

/// Sets `flag` of the lines that `others` does not have, or has fewer of.
static void markMissing(llvm::MutableArrayRef<Line> lines, llvm::ArrayRef<Line> others, bool Line::*flag) {
  llvm::StringMap<size_t> counts;
  for (const Line &line : others)
    ++counts[line.key];
  for (Line &line : lines) {
    auto count = counts.find(line.key);
    bool isThere = line.key.empty() || (count != counts.end() && count->second > 0);
    line.*flag = !isThere;
    if (count != counts.end() && count->second > 0)
      --count->second;
  }
}

static void printLines(llvm::ArrayRef<Line> lines, llvm::raw_ostream &os) {
  // Adjacent lines of a kind are one element.
  for (size_t begin = 0, end = 0; begin < lines.size(); begin = end) {
    const Line &first = lines[begin];
    llvm::SmallString<256> text;
    for (; end < lines.size() && lines[end].isNew == first.isNew && lines[end].isGone == first.isGone; ++end)
      (text += lines[end].text) += '\n';
    StringRef kind = first.isNew ? first.isGone ? "new gone" : "new" : first.isGone ? "gone" : "same";
    os << "<i class=\"" << kind << "\">";
    llvm::printHTMLEscaped(text, os);
    os << "</i>";
  }
}

void saccade::printStagePage(llvm::ArrayRef<StageText> stages, StringRef title, llvm::raw_ostream &os) {
  llvm::SmallVector<llvm::SmallVector<Line>> columns;
  for (const StageText &stage : stages) {
    llvm::SmallVector<StringRef> texts;
    StringRef(stage.text).rtrim().split(texts, '\n');
    llvm::SmallVector<Line> &lines = columns.emplace_back();
    for (StringRef text : texts)
      lines.push_back({text, keyOf(text)});
  }
  for (size_t i = 0; i + 1 < columns.size(); ++i) {
    markMissing(columns[i + 1], columns[i], &Line::isNew);
    markMissing(columns[i], columns[i + 1], &Line::isGone);
  }
  os << "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>";
  llvm::printHTMLEscaped(title, os);
  os << "</title><style>" << style << "</style></head><body>\n<header><b>";
  llvm::printHTMLEscaped(title, os);
  os << "</b> <span><span class=\"new\">new</span> since the stage to the left</span> <span><span "
        "class=\"gone\">gone</span> in the stage to the right</span> <label><input type=\"checkbox\" id=\"changed\"> "
        "changes only</label></header>\n<main>\n";
  for (auto [stage, lines] : llvm::zip_equal(stages, columns)) {
    os << "<details open><summary>";
    llvm::printHTMLEscaped(stage.title, os);
    os << ": " << lines.size() << " lines, " << llvm::count_if(lines, [](const Line &line) { return line.isNew; })
       << " new</summary><pre>";
    printLines(lines, os);
    os << "</pre></details>\n";
  }
  os << "</main></body></html>\n";
}

llvm::Error saccade::writeStagePage(llvm::ArrayRef<std::string> files, StringRef path) {
  llvm::SmallVector<StageText> stages;
  for (const std::string &file : files) {
    llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> text = llvm::MemoryBuffer::getFile(file, /*IsText=*/true);
    if (text)
      stages.push_back({llvm::sys::path::stem(file).str(), (*text)->getBuffer().str()});
  }
  return writeOutput(path, [&](llvm::raw_ostream &os) {
    printStagePage(stages, "Stages of the program", os);
    return llvm::Error::success();
  });
}
