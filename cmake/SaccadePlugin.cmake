# saccade_add_plugin(<name> <sources>...): the plugin <name>.so, a shared library with passes or dialects for
# --load-pass-plugin and --load-dialect-plugin. It records the version of Saccade that it is built for, which is compared
# when it is loaded. The sources define mlirGetPassPluginInfo or mlirGetDialectPluginInfo, or both.
function(saccade_add_plugin name)
  set(version "${CMAKE_CURRENT_BINARY_DIR}/${name}-version.cpp")
  file(CONFIGURE OUTPUT "${version}" CONTENT "// Generated: the version that the plugin is built for.
__attribute__((section(\".saccade.plugin\"), used)) static const char version[] = \"@SACCADE_VERSION_LINE@\";
" @ONLY)
  add_library(${name} MODULE ${ARGN} "${version}")
  target_compile_features(${name} PRIVATE cxx_std_20)
  # As LLVM is compiled; with RTTI if it has RTTI.
  target_compile_options(${name} PRIVATE -fno-exceptions $<$<NOT:$<BOOL:${LLVM_ENABLE_RTTI}>>:-fno-rtti>)
  target_include_directories(${name} SYSTEM PRIVATE ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  target_link_libraries(${name} PRIVATE Saccade::Compiler MLIR LLVM)
  set_target_properties(${name} PROPERTIES PREFIX "")
endfunction()
