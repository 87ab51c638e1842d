# How a Saccade library, tool and TableGen file are declared.

# Flags for the whole project: LLVM's own conventions, assertions kept, sanitizers on request.
macro(saccade_compile_options)
  # RTTI stays on, as in the packaged LLVM.
  add_compile_options(-Wall -Wextra -Wno-unused-parameter)
  if(SACCADE_ASSERTIONS)
    string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
    string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  endif()
  foreach(sanitizer IN LISTS SACCADE_SANITIZE)
    add_compile_options(-fsanitize=${sanitizer} -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${sanitizer})
  endforeach()
endmacro()

saccade_compile_options()

# The compiler half: everything that may see LLVM and MLIR. One precompiled header serves them all.
add_library(SaccadePrecompiled OBJECT "${PROJECT_SOURCE_DIR}/cmake/Precompiled.cpp")
target_include_directories(SaccadePrecompiled SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
target_precompile_headers(SaccadePrecompiled PRIVATE "${PROJECT_SOURCE_DIR}/cmake/Precompiled.h")
# Without the headers' time stamps two checkouts make the same precompiled header, and ccache serves both.
target_compile_options(SaccadePrecompiled PRIVATE SHELL:-Xclang SHELL:-fno-pch-timestamp)

function(_saccade_compiler_target name)
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include")
  target_include_directories(${name} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  target_precompile_headers(${name} REUSE_FROM SaccadePrecompiled)
  if(TARGET SaccadeTableGen)
    add_dependencies(${name} SaccadeTableGen)
  endif()
endfunction()

# saccade_library(<Name> SOURCES... LINK <targets>...): the static library Saccade<Name>.
function(saccade_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(Saccade${name} STATIC ${ARG_SOURCES})
  _saccade_compiler_target(Saccade${name})
  target_link_libraries(Saccade${name} PUBLIC ${ARG_LINK} MLIR LLVM)
endfunction()

# saccade_tool(<name> SOURCES... LINK <targets>...): an executable in bin/.
function(saccade_tool name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  _saccade_compiler_target(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} MLIR LLVM)
  # A plugin resolves our symbols from the tool that loads it. -fPIC, not -fPIE: the precompiled header is shared.
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)
endfunction()
