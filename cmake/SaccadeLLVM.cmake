# SaccadeLLVM: the libraries of LLVM, MLIR and LLD that all targets link. By default these are the shared libraries of the
# system, as plugins of passes require. With SACCADE_STATIC_LLVM they are the archives, so that libsaccade.so needs neither.
option(SACCADE_STATIC_LLVM "Link LLVM and MLIR statically into libsaccade.so, which then contains the tools" OFF)

find_package(LLD REQUIRED CONFIG HINTS "${LLVM_DIR}/../lld")
add_library(SaccadeLLVM INTERFACE)
if(NOT SACCADE_STATIC_LLVM)
  target_link_libraries(SaccadeLLVM INTERFACE lldELF MLIR LLVM)
  return()
endif()

# The exported targets of a distribution's archives depend on the shared libraries, so the files are linked. One group,
# because archives of MLIR, LLVM and LLD refer to each other; the linker reads only members that something refers to.
get_property(libraries GLOBAL PROPERTY MLIR_ALL_LIBS)
list(APPEND libraries ${LLVM_AVAILABLE_LIBS} lldELF lldCommon)
list(FILTER libraries EXCLUDE REGEX "^(LLVM|MLIR)$|CAPI|Test")
set(archives)
foreach(library IN LISTS libraries)
  set(archive "${LLVM_LIBRARY_DIR}/lib${library}.a")
  if(EXISTS "${archive}")
    list(APPEND archives "${archive}")
  endif()
endforeach()
foreach(library IN ITEMS MLIRIR LLVMCore lldELF)
  if(NOT "${LLVM_LIBRARY_DIR}/lib${library}.a" IN_LIST archives)
    message(FATAL_ERROR "SACCADE_STATIC_LLVM needs the archives of LLVM, MLIR and LLD; there is no lib${library}.a in "
                        "${LLVM_LIBRARY_DIR} (on Debian: llvm-22-dev, libmlir-22-dev and liblld-22-dev)")
  endif()
endforeach()
foreach(library IN ITEMS z zstd)
  find_library(SACCADE_ARCHIVE_${library} "lib${library}.a")
  if(NOT SACCADE_ARCHIVE_${library})
    message(FATAL_ERROR "SACCADE_STATIC_LLVM needs lib${library}.a, which LLVM uses (on Debian: zlib1g-dev and libzstd-dev)")
  endif()
  list(APPEND archives "${SACCADE_ARCHIVE_${library}}")
endforeach()
string(REPLACE ";" "," archives "${archives}")
target_link_libraries(SaccadeLLVM INTERFACE "$<LINK_GROUP:RESCAN,${archives}>" ${CMAKE_DL_LIBS} m)

# LLD initializes every backend of LLVM, for link-time optimization that Saccade does not use. Empty definitions for all but
# the three that Saccade compiles for keep the others out of the library.
set(targets ${LLVM_TARGETS_TO_BUILD})
list(REMOVE_ITEM targets X86 AArch64 NVPTX)
set(text "// Generated: initializers of backends that Saccade does not use.\nextern \"C\" {\n")
foreach(target IN LISTS targets)
  foreach(part IN ITEMS TargetInfo Target TargetMC AsmPrinter AsmParser Disassembler)
    string(APPEND text "void LLVMInitialize${target}${part}() {}\n")
  endforeach()
endforeach()
set(SACCADE_UNUSED_TARGETS "${PROJECT_BINARY_DIR}/UnusedTargets.cpp")
file(CONFIGURE OUTPUT "${SACCADE_UNUSED_TARGETS}" CONTENT "${text}}\n" @ONLY)

# Sections of one function each, so that the linker drops what is not used and merges equal functions.
add_compile_options(-ffunction-sections -fdata-sections)
