//===- ToolMain.cpp - Common main function of the tools -----------------------===//
//
// The fault handler uses prepared text and async-signal-safe functions only. It runs on its own stack, because a fault
// may be a stack overflow.
//
//===----------------------------------------------------------------------===//
#include "saccade/Support/ToolMain.h"
#include "saccade/Support/OutputFile.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/thread.h"
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

using namespace saccade;

namespace {
/// The data of the fault handler.
struct Reproducer {
  char path[512] = "";
  char commandLine[4096] = "";
  const char *input = nullptr;
  size_t inputSize = 0;
};
} // namespace

static Reproducer reproducer;

/// Comments with the files of `addToReproducer`.
static std::string &otherFiles() {
  static std::string text;
  return text;
}

static void writeAll(int file, const char *text, size_t size) {
  while (size > 0) {
    ssize_t written = ::write(file, text, size);
    if (written <= 0)
      return;
    text += written;
    size -= static_cast<size_t>(written);
  }
}

static void say(const char *text) { writeAll(STDERR_FILENO, text, std::strlen(text)); }

/// The text in parts that `setRunningPass` sets; a fault may come while it does.
static char runningPass[128], runningPlugin[512];
static bool isInTool = false;

static void setText(llvm::StringRef text, llvm::MutableArrayRef<char> into) {
  text = text.take_front(into.size() - 1);
  std::copy(text.begin(), text.end(), into.begin());
  into[text.size()] = '\0';
}

void saccade::setRunningPass(llvm::StringRef pass, llvm::StringRef plugin) {
  if (!isInTool)
    return;
  setText(pass, runningPass);
  setText(plugin, runningPlugin);
}

/// Names the running pass and plugin; returns whether there is a plugin.
static bool sayWhatRuns() {
  if (runningPass[0])
    for (const char *text : {"  while the pass '", static_cast<const char *>(runningPass), "' was running\n"})
      say(text);
  if (!runningPlugin[0])
    return false;
  say(runningPass[0] ? "  which is in the plugin " : "  while loading the plugin ");
  say(runningPlugin);
  say("\n");
  return true;
}

[[noreturn]] static void endWithReproducer() {
  bool isInPlugin = sayWhatRuns();
  int file = open(reproducer.path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file >= 0) {
    writeAll(file, reproducer.commandLine, std::strlen(reproducer.commandLine));
    writeAll(file, reproducer.input, reproducer.inputSize);
    writeAll(file, otherFiles().data(), otherFiles().size());
    close(file);
    say(isInPlugin ? "This is a bug in the plugin; a reproducer is in "
                   : "This is a bug in Saccade; please report it with the reproducer in ");
    say(reproducer.path);
    say("\n");
  } else {
    say(isInPlugin ? "This is a bug in the plugin\n"
                   : "This is a bug in Saccade; please report it with the command line and its input\n");
  }
  _exit(ExitInternal);
}

static bool printsStack = false;

static void onFault(int signal) {
  if (printsStack)
    llvm::sys::RunSignalHandlers();
  say("\nsaccade: internal error: ");
  say(strsignal(signal));
  say("\n");
  endWithReproducer();
}

static void installFaultHandler() {
  struct sigaction action{};
  action.sa_handler = onFault;
  action.sa_flags = SA_ONSTACK | SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    sigaction(fault, &action, nullptr);
}

void saccade::printStackOnFault() {
  llvm::EnablePrettyStackTrace();
  llvm::sys::PrintStackTraceOnErrorSignal("");
  printsStack = true;
  // LLVM has installed its own.
  installFaultHandler();
}

static void prepareReproducer(llvm::ArrayRef<const char *> commandLine) {
  llvm::SmallString<256> folder;
  llvm::sys::path::system_temp_directory(/*ErasedOnReboot=*/true, folder);
  std::string path = (folder + "/saccade-reproducer-" + llvm::Twine(getpid()) + ".mlir").str();
  std::string line = "//";
  for (const char *argument : commandLine)
    line.append(" ").append(argument);
  std::strncpy(reproducer.path, path.c_str(), sizeof(reproducer.path) - 1);
  line.resize(std::min(line.size(), sizeof(reproducer.commandLine) - 2));
  std::memcpy(reproducer.commandLine, (line + "\n").c_str(), line.size() + 2);
}

void saccade::setReproducerInput(llvm::StringRef input) {
  reproducer.input = input.data();
  reproducer.inputSize = input.size();
}

void saccade::addToReproducer(llvm::StringRef path, llvm::StringRef text) {
  std::string &into = otherFiles();
  into += ("\n// " + path + ":\n").str();
  for (llvm::StringRef line : llvm::split(text.rtrim('\n'), '\n'))
    into += ("// " + line + "\n").str();
}

void saccade::reportInternalError(const llvm::Twine &message) {
  say("saccade: internal error: ");
  say(message.str().c_str());
  say("\n");
  endWithReproducer();
}

int saccade::runTool(llvm::ArrayRef<const char *> commandLine, llvm::function_ref<int()> body) {
  isInTool = true;
  prepareReproducer(commandLine);
  installFaultHandler();
  int code = ExitInternal;
  // Parsers and verifiers recurse on the nesting of programs; untouched stack pages cost no memory.
  const std::optional<unsigned> stackBytes = 512u << 20;
  llvm::thread runner(stackBytes, [&] {
    constexpr size_t faultStackBytes = 64 << 10;
    auto memory = std::make_unique<char[]>(faultStackBytes);
    stack_t faultStack{};
    faultStack.ss_sp = memory.get();
    faultStack.ss_size = faultStackBytes;
    sigaltstack(&faultStack, nullptr);
    code = body();
    faultStack.ss_flags = SS_DISABLE;
    sigaltstack(&faultStack, nullptr);
  });
  runner.join();
  if (llvm::Error error = flushStandardOutput()) {
    llvm::errs() << "error: cannot write to standard output: " << llvm::toString(std::move(error)) << '\n';
    return code == ExitSuccess ? ExitFile : code;
  }
  return code;
}
