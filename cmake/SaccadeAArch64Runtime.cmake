# The runtime and the stubs of the C library for AArch64, cross-compiled on other machines: the archive
# SaccadeRuntimeAArch64 and two stubs, whose paths SACCADE_AARCH64_FILES lists. It is empty if the compiler finds no headers
# for AArch64 (on Debian: libc6-dev-arm64-cross and libstdc++-12-dev-arm64-cross); `--emit=so` then refuses these targets.
set(SACCADE_AARCH64_FILES)
set(for_aarch64 --target=aarch64-linux-gnu)

function(saccade_find_aarch64 into)
  set(probe "${CMAKE_CURRENT_BINARY_DIR}/aarch64.cpp")
  file(WRITE "${probe}" "#include <atomic>\n#include <dlfcn.h>\n#include <pthread.h>\n#include <linux/futex.h>\n")
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${for_aarch64} -std=c++20 -fsyntax-only "${probe}"
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed OR CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    set(${into} OFF PARENT_SCOPE)
  else()
    set(${into} ON PARENT_SCOPE)
  endif()
endfunction()

# saccade_add_aarch64_program(name SOURCE file): a program in the folder of the tools.
function(saccade_add_aarch64_program name)
  cmake_parse_arguments(arg "" "SOURCE" "" ${ARGN})
  set(program "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name}")
  add_custom_command(OUTPUT "${program}" DEPENDS "${arg_SOURCE}" DEPFILE "${CMAKE_CURRENT_BINARY_DIR}/${name}.d" VERBATIM
    COMMAND "${CMAKE_CXX_COMPILER}" --target=aarch64-linux-gnu -std=c++20 -O2 -I "${PROJECT_SOURCE_DIR}/include"
            "--ld-path=${LLVM_TOOLS_BINARY_DIR}/ld.lld" -static-libstdc++ -static-libgcc
            -MD -MF "${CMAKE_CURRENT_BINARY_DIR}/${name}.d" "${arg_SOURCE}" -o "${program}")
  add_custom_target(${name} ALL DEPENDS "${program}")
endfunction()

# saccade_add_aarch64_runtime(SOURCES... STUBS... FLAGS...): adds the rules and sets SACCADE_AARCH64_FILES.
function(saccade_add_aarch64_runtime)
  cmake_parse_arguments(arg "" "" "SOURCES;STUBS;FLAGS" ${ARGN})
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/aarch64")
  file(MAKE_DIRECTORY "${folder}")
  set(objects)
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(GET source STEM name)
    set(object "${folder}/${name}.o")
    # Atomics in line, because outlined ones are functions of the compiler's run-time library.
    add_custom_command(OUTPUT "${object}" DEPENDS "${source}" DEPFILE "${object}.d" VERBATIM
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} "${CMAKE_CXX_COMPILER}" ${for_aarch64} -mno-outline-atomics -std=c++20 ${arg_FLAGS}
              -I "${PROJECT_SOURCE_DIR}/include" -MD -MF "${object}.d" -c "${source}" -o "${object}")
    list(APPEND objects "${object}")
  endforeach()
  set(archive "${CMAKE_ARCHIVE_OUTPUT_DIRECTORY}/libSaccadeRuntimeAArch64.a")
  add_custom_command(OUTPUT "${archive}" DEPENDS ${objects} VERBATIM
    COMMAND "${CMAKE_COMMAND}" -E rm -f "${archive}"
    COMMAND "${LLVM_TOOLS_BINARY_DIR}/llvm-ar" qcsD "${archive}" ${objects})
  set(files "${archive}")
  foreach(source IN LISTS arg_STUBS)
    cmake_path(GET source STEM name)
    string(REGEX REPLACE "^Lib(.*)Stub$" "lib\\1.so.6" soname "${name}")
    set(stub "${folder}/${soname}")
    add_custom_command(OUTPUT "${stub}" DEPENDS "${source}" VERBATIM
      COMMAND "${CMAKE_C_COMPILER}" ${for_aarch64} -O2 -shared -nostdlib "--ld-path=${LLVM_TOOLS_BINARY_DIR}/ld.lld"
              "-Wl,-soname,${soname}" -Wl,--build-id=none "${source}" -o "${stub}")
    list(APPEND files "${stub}")
  endforeach()
  set(SACCADE_AARCH64_FILES ${files} PARENT_SCOPE)
endfunction()
saccade_find_aarch64(SACCADE_HAS_AARCH64_RUNTIME)
