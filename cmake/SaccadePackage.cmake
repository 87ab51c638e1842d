# The CMake package of an installation: find_package(Saccade) gives Saccade::Compiler, the tools as Saccade::saccade-opt and
# so on, and saccade_add_plugin(). A static build has none: it loads no plugins.
if(SACCADE_STATIC_LLVM)
  return()
endif()
include(CMakePackageConfigHelpers)

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/Saccade")
install(EXPORT SaccadeTargets NAMESPACE Saccade:: COMPONENT development DESTINATION "${package}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/saccade" "${PROJECT_BINARY_DIR}/include/saccade" COMPONENT development
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "*.td" PATTERN "*.inc" PATTERN "CMakeFiles" EXCLUDE)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/SaccadeConfig.cmake.in" "${PROJECT_BINARY_DIR}/package/SaccadeConfig.cmake"
  INSTALL_DESTINATION "${package}" PATH_VARS CMAKE_INSTALL_BINDIR)
# Before version 1.0 minor versions may change interfaces.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/SaccadeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/SaccadeConfig.cmake"
              "${PROJECT_BINARY_DIR}/package/SaccadeConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/SaccadePlugin.cmake"
        COMPONENT development DESTINATION "${package}")
