# Functions that declare the libraries and tools of Saccade.

# Compile options of the whole project: warnings, assertions, sanitizers.
macro(saccade_compile_options)
  # As the packaged LLVM is compiled: with RTTI, without exceptions.
  add_compile_options(-Wall -Wextra -Wno-unused-parameter)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions>")
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

# The disk cache identifies the compiler by its build ID (lib/JIT/CompilerIdentity.cpp).
add_link_options(LINKER:--build-id)

# Targets that use LLVM and MLIR share one precompiled header.
add_library(SaccadePrecompiled OBJECT "${PROJECT_SOURCE_DIR}/cmake/Precompiled.cpp")
target_include_directories(SaccadePrecompiled SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
target_precompile_headers(SaccadePrecompiled PRIVATE "${PROJECT_SOURCE_DIR}/cmake/Precompiled.h")
target_compile_options(SaccadePrecompiled PRIVATE SHELL:-Xclang SHELL:-fno-pch-timestamp)
# The precompiled header contains absolute paths, so it is never cached. ccache identifies it by this checksum of its
# inputs.
set_target_properties(SaccadePrecompiled PROPERTIES CXX_COMPILER_LAUNCHER "")
file(READ "${PROJECT_SOURCE_DIR}/cmake/Precompiled.h" precompiled)
execute_process(COMMAND "${CMAKE_CXX_COMPILER}" --version OUTPUT_VARIABLE compiler_version)
string(SHA256 checksum "${precompiled};${compiler_version};${LLVM_PACKAGE_VERSION};${CMAKE_BUILD_TYPE};\
${CMAKE_CXX_FLAGS};${CMAKE_CXX_FLAGS_RELEASE};${CMAKE_CXX_FLAGS_RELWITHDEBINFO};${SACCADE_SANITIZE}")
set(SACCADE_PCH "${PROJECT_BINARY_DIR}/CMakeFiles/SaccadePrecompiled.dir/cmake_pch.hxx.pch")
file(CONFIGURE OUTPUT "${SACCADE_PCH}.sum" CONTENT "${checksum}\n")

# The precompiled header's path is relative to the build tree, where the compiler runs, so that ccache hashes equal
# commands in all checkouts. Objects depend on the headers in it through their dependency files.
function(_saccade_compiler_target name)
  cmake_parse_arguments(ARG "NO_PCH;HOT" "" "" ${ARGN})
  if(SACCADE_QUICK_FLAGS AND NOT ARG_NO_PCH AND NOT ARG_HOT)
    # The precompiled header has other optimization flags, which is harmless.
    target_compile_options(${name} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:${SACCADE_QUICK_FLAGS} -Xclang -fno-validate-pch>")
  endif()
  target_include_directories(${name} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                                            "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>")
  target_include_directories(${name} SYSTEM PUBLIC "$<BUILD_INTERFACE:${MLIR_INCLUDE_DIRS};${LLVM_INCLUDE_DIRS}>")
  if(NOT ARG_NO_PCH)
    target_compile_options(${name} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -include-pch -Xclang CMakeFiles/SaccadePrecompiled.dir/cmake_pch.hxx.pch>")
    get_target_property(sources ${name} SOURCES)
    set_property(SOURCE ${sources} APPEND PROPERTY OBJECT_DEPENDS "${SACCADE_PCH}")
  endif()
  if(TARGET SaccadeTableGen)
    add_dependencies(${name} SaccadeTableGen)
  endif()
endfunction()

# _saccade_unity(<out> <name> <max> <sources>...): groups sources into files that include up to <max> of them each, so that
# headers and templates are compiled once a group. The includes are relative to the project: all checkouts make equal files.
function(_saccade_unity out name max)
  list(LENGTH ARGN count)
  if(max LESS 2 OR count LESS 2)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(units)
  set(number 0)
  # Groups of equal size.
  math(EXPR groups "(${count} + ${max} - 1) / ${max}")
  math(EXPR size "(${count} + ${groups} - 1) / ${groups}")
  while(ARGN)
    list(SUBLIST ARGN 0 ${size} group)
    list(REMOVE_ITEM ARGN ${group})
    set(text "// Generated: the sources of one compilation.\n")
    foreach(source IN LISTS group)
      file(RELATIVE_PATH relative "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
      string(APPEND text "#include \"${relative}\"\n")
    endforeach()
    set(unit "${CMAKE_CURRENT_BINARY_DIR}/${name}.${number}.cpp")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "${text}" @ONLY)
    list(APPEND units "${unit}")
    math(EXPR number "${number} + 1")
  endwhile()
  set(${out} ${units} PARENT_SCOPE)
endfunction()

# saccade_library(<Name> [NO_PCH] [HOT] SOURCES... [SEPARATE...] LINK <targets>...): the static library Saccade<Name>.
# HOT is for code in which tests spend their time; SACCADE_QUICK_FLAGS apply to all other libraries and to tools.
# SEPARATE sources are compiled on their own: their file-local names clash with those of other files, or they change less
# often. NO_PCH is for sources without MLIR headers that set their own compile options.
function(saccade_library name)
  cmake_parse_arguments(ARG "NO_PCH;HOT" "" "SOURCES;SEPARATE;LINK" ${ARGN})
  set(options)
  foreach(option NO_PCH HOT)
    if(ARG_${option})
      list(APPEND options ${option})
    endif()
  endforeach()
  set(max ${SACCADE_UNITY})
  if(ARG_HOT)
    math(EXPR max "(${max} + 1) / 2") # optimized code compiles more slowly
  endif()
  _saccade_unity(units Saccade${name} ${max} ${ARG_SOURCES})
  add_library(Saccade${name} STATIC ${units} ${ARG_SEPARATE})
  target_include_directories(Saccade${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  _saccade_compiler_target(Saccade${name} ${options})
  target_link_libraries(Saccade${name} PUBLIC ${ARG_LINK} SaccadeLLVM)
endfunction()

# saccade_tool(<name> [ENTRY <function>] SOURCES... LINK <targets>...): an executable in bin/. With ENTRY the sources define
# extern "C" int <function>(int argc, char **argv) instead of main, and the tool is installed. The sources are then part of
# libsaccade.so, which exports the entries: the compiler is on disk once, and plugins find the same symbols in every host.
function(saccade_tool name)
  cmake_parse_arguments(ARG "" "ENTRY" "SOURCES;LINK" ${ARGN})
  _saccade_unity(units ${name} ${SACCADE_UNITY} ${ARG_SOURCES})
  if(ARG_ENTRY)
    set(main "${CMAKE_CURRENT_BINARY_DIR}/${name}-main.c")
    file(CONFIGURE OUTPUT "${main}" CONTENT "/* Generated: the main function of a tool. */
int @ARG_ENTRY@(int argc, char **argv);
int main(int argc, char **argv) { return @ARG_ENTRY@(argc, argv); }
" @ONLY)
  endif()
  if(ARG_ENTRY)
    add_library(${name}-objects OBJECT ${units})
    target_include_directories(${name}-objects PRIVATE "${PROJECT_SOURCE_DIR}")
    _saccade_compiler_target(${name}-objects)
    target_link_libraries(${name}-objects PRIVATE ${ARG_LINK})
    target_sources(SaccadeC PRIVATE $<TARGET_OBJECTS:${name}-objects>)
    target_link_libraries(SaccadeC PRIVATE ${ARG_LINK})
    add_executable(${name} "${main}")
    target_link_libraries(${name} PRIVATE SaccadeC)
    # The library is in the same place in the build tree, in the Python package and, mostly, where it is installed.
    if(CMAKE_INSTALL_LIBDIR STREQUAL "lib")
      set_target_properties(${name} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
    endif()
  else()
    add_executable(${name} ${units} ${main})
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
    _saccade_compiler_target(${name})
    target_link_libraries(${name} PRIVATE ${ARG_LINK} SaccadeLLVM)
    # Copies of the runtime in libraries that it loads share its symbols. -fPIC instead of -fPIE: the precompiled header is
    # shared.
    set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)
  endif()
  if(ARG_ENTRY)
    saccade_install(${name})
  endif()
endfunction()

# Installs a tool or library, which finds libsaccade.so relative to itself, and shared LLVM where the build found it. With
# shared LLVM it is part of the CMake package (SaccadePackage.cmake).
function(saccade_install name)
  set(paths "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set(export)
  if(NOT SACCADE_STATIC_LLVM)
    list(APPEND paths "${LLVM_LIBRARY_DIR}")
    set(export EXPORT SaccadeTargets)
  endif()
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "${paths}")
  install(TARGETS ${name} ${export} COMPONENT runtime RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endfunction()
