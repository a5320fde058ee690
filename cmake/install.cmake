# `make install`: shared libraries with SONAME, public headers, pkg-config files, the CMake package
# and the command line. A release build is installed without what debuggers read; other build types keep it.
include(CMakePackageConfigHelpers)
if(CMAKE_BUILD_TYPE MATCHES "^(Release|Demo)$")
  install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)") # of the rules below
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tegula)
set(installed_libraries tegula)
if(TARGET tegula_model)
  list(APPEND installed_libraries tegula_model)
endif()

install(TARGETS ${installed_libraries} EXPORT tegula-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tegula-targets NAMESPACE tegula:: DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tegula DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET tegula_cli)
  install(TARGETS tegula_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

write_basic_package_version_file(tegula-config-version.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(cmake/tegula-config.cmake.in tegula-config.cmake INSTALL_DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/tegula-config.cmake ${PROJECT_BINARY_DIR}/tegula-config-version.cmake
        DESTINATION ${package_dir})

# ${pcfiledir} keeps the files right wherever the tree is moved to, also below DESTDIR.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(description_tegula "Transformer kernels, forward and backward")
set(requires_tegula "")
set(description_tegula_model "Training and generation with transformer models")
set(requires_tegula_model "tegula = ${PROJECT_VERSION}")
foreach(library IN LISTS installed_libraries)
  set(description ${description_${library}})
  set(requires ${requires_${library}})
  configure_file(cmake/library.pc.in ${library}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${library}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
