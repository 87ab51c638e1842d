//===- ExplainPrint.cpp - The report as text, JSON and HTML -------------------===//
//
// Each form prints all of the record.
//
//===----------------------------------------------------------------------===//
#include "ExplainRecord.h"
#include "llvm/ADT/StringExtras.h"

using namespace saccade;
using llvm::StringRef;

static constexpr StringRef sharedKernels = "shared with another attention with equal tasks";

static constexpr StringRef style = R"(
:root { color-scheme: light dark; }
body { margin: 24px auto; max-width: 1100px; padding: 0 16px; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; }
h2 { font-size: 16px; margin: 32px 0 8px; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: 3px 16px 3px 0; border-bottom: 1px solid #8884; }
th { font-weight: 600; white-space: nowrap; }
code, pre { font: 13px/1.2 ui-monospace, monospace; }
)";

std::string Explanation::Attention::title() const {
  return (hasTangents ? "attention and its tangents in '" : "attention in '") + function + "'" +
         (place.empty() ? "" : " at " + place);
}

static std::string titleOf(const Explanation::Softmax &softmax) {
  return softmax.place.empty() ? "softmax" : "softmax at " + softmax.place;
}

static std::string textOf(const Explanation::Kernel &kernel) { return "kernel family " + kernel.family + kernel.notes; }

static std::string textOf(const Explanation::Resources &of) {
  return std::to_string(of.registers) + " registers, " + std::to_string(of.stack) + " bytes of stack, " +
         std::to_string(of.spilled) + " bytes spilled";
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

void Explanation::printText(llvm::raw_ostream &os) const {
  if (attentions.empty())
    os << "no attention in a public function\n";
  bool hasKernels = llvm::any_of(attentions, [](const Attention &attention) { return !attention.kernels.empty(); });
  for (const Attention &attention : attentions) {
    os << attention.title() << '\n';
    if (hasKernels && attention.kernels.empty())
      os << "  kernels: " << sharedKernels << '\n';
    for (const Kernel &kernel : attention.kernels)
      os << "  " << kernel.name << ": " << textOf(kernel) << '\n';
    for (const Line &line : attention.lines)
      os << "  " << line.name << ": " << line.text << '\n';
    for (const std::string &row : attention.picture)
      os << "    " << row << '\n';
  }
  for (const Softmax &softmax : softmaxes)
    os << titleOf(softmax) << ": " << softmax.reason << '\n';
  for (const Prepacked &each : prepacked)
    os << "weights are prepacked once by '" << each.function << "': " << each.amount << '\n';
  for (const Kernel &kernel : otherKernels)
    os << kernel.name << ": " << textOf(kernel) << '\n';
  for (const Resources &each : resources)
    os << each.kernel << ": " << textOf(each) << '\n';
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

static void printKernels(llvm::json::OStream &json, llvm::ArrayRef<Explanation::Kernel> kernels) {
  json.attributeArray("kernels", [&] {
    for (const Explanation::Kernel &kernel : kernels)
      json.object([&] {
        StringRef notes = kernel.notes;
        notes.consume_front(", ");
        json.attribute("name", kernel.name);
        json.attribute("family", kernel.family);
        json.attribute("notes", notes);
      });
  });
}

void Explanation::printJSON(llvm::json::OStream &json) const {
  json.attribute("program", program);
  json.attribute("target", target);
  json.attributeArray("attentions", [&] {
    for (const Attention &attention : attentions)
      json.object([&] {
        json.attribute("function", attention.function);
        json.attribute("place", attention.place);
        json.attribute("has_tangents", attention.hasTangents);
        printKernels(json, attention.kernels);
        json.attributeArray("lines", [&] {
          for (const Line &line : attention.lines)
            json.object([&] {
              json.attribute("name", line.name);
              json.attribute("text", line.text);
            });
        });
        json.attributeArray("picture", [&] {
          for (const std::string &row : attention.picture)
            json.value(row);
        });
        json.attribute("numbers", llvm::json::Object(attention.numbers));
      });
  });
  json.attributeArray("softmaxes", [&] {
    for (const Softmax &softmax : softmaxes)
      json.object([&] {
        json.attribute("place", softmax.place);
        json.attribute("reason", softmax.reason);
      });
  });
  json.attributeArray("prepacked", [&] {
    for (const Prepacked &each : prepacked)
      json.object([&] {
        json.attribute("function", each.function);
        json.attribute("amount", each.amount);
      });
  });
  printKernels(json, otherKernels);
  json.attributeArray("resources", [&] {
    for (const Resources &each : resources)
      json.object([&] {
        json.attribute("kernel", each.kernel);
        json.attribute("registers", each.registers);
        json.attribute("stack_bytes", each.stack);
        json.attribute("spilled_bytes", each.spilled);
      });
  });
}

//===----------------------------------------------------------------------===//
// HTML
//===----------------------------------------------------------------------===//

namespace {

/// Writes a table of two columns, which begins with its first row.
class Table {
public:
  Table(llvm::raw_ostream &os, StringRef title) : os(os), title(title) {}
  ~Table() {
    if (hasRows)
      os << "</table>\n";
  }

  void add(StringRef name, StringRef text, bool isCode = false) {
    if (!hasRows) {
      os << "<h2>";
      llvm::printHTMLEscaped(title, os);
      os << "</h2>\n<table>\n";
    }
    hasRows = true;
    os << "<tr><th>" << (isCode ? "<code>" : "");
    llvm::printHTMLEscaped(name, os);
    os << (isCode ? "</code>" : "") << "</th><td>";
    llvm::printHTMLEscaped(text, os);
    os << "</td></tr>\n";
  }

private:
  llvm::raw_ostream &os;
  std::string title;
  bool hasRows = false;
};

} // namespace

void Explanation::printHTML(llvm::raw_ostream &os) const {
  os << "<h1>";
  llvm::printHTMLEscaped(program + " for " + target, os);
  os << "</h1>\n";
  if (attentions.empty())
    os << "<p>no attention in a public function</p>\n";
  bool hasKernels = llvm::any_of(attentions, [](const Attention &attention) { return !attention.kernels.empty(); });
  for (const Attention &attention : attentions) {
    {
      Table table(os, attention.title());
      if (hasKernels && attention.kernels.empty())
        table.add("kernels", sharedKernels);
      for (const Kernel &kernel : attention.kernels)
        table.add(kernel.name, textOf(kernel), /*isCode=*/true);
      for (const Line &line : attention.lines)
        table.add(line.name, line.text);
    }
    if (attention.picture.empty())
      continue;
    os << "<pre>";
    for (const std::string &row : attention.picture)
      os << row << '\n';
    os << "</pre>\n";
  }
  {
    Table table(os, "Not raised to attention");
    for (const Softmax &softmax : softmaxes)
      table.add(titleOf(softmax), softmax.reason);
  }
  {
    Table table(os, "Weights that are prepacked once");
    for (const Prepacked &each : prepacked)
      table.add(each.function, each.amount, /*isCode=*/true);
  }
  {
    Table table(os, "Other kernels");
    for (const Kernel &kernel : otherKernels)
      table.add(kernel.name, textOf(kernel), /*isCode=*/true);
  }
  Table table(os, "Resources of kernels");
  for (const Resources &each : resources)
    table.add(each.kernel, textOf(each), /*isCode=*/true);
}

void Explanation::print(llvm::ArrayRef<std::unique_ptr<Explanation>> reports, ExplainForm form, llvm::raw_ostream &os) {
  switch (form) {
  case ExplainForm::Text:
    for (const auto &report : reports) {
      if (reports.size() > 1)
        os << "for " << report->target << ":\n";
      report->printText(os);
    }
    return;
  case ExplainForm::JSON: {
    llvm::json::OStream json(os, /*IndentSize=*/2);
    json.object([&] {
      json.attribute("version", explainVersion);
      json.attributeArray("reports", [&] {
        for (const auto &report : reports)
          json.object([&] { report->printJSON(json); });
      });
    });
    os << '\n';
    return;
  }
  case ExplainForm::HTML:
    os << "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Explanation</title><style>" << style
       << "</style></head><body>\n";
    for (const auto &report : reports)
      report->printHTML(os);
    os << "</body></html>\n";
    return;
  }
}
