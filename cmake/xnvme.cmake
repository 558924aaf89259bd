# The xNVMe engine, an object of its own beside the one that uses it (src/io/engine/xnvme/xnvme_library.cpp): built where
# pkg-config finds libxnvme, left out otherwise.

# Puts it into `folder` as well, where `target` is loaded from.
function(rawduck_with_xnvme target folder)
  if(TARGET rawduck_xnvme)
    add_dependencies(${target} rawduck_xnvme)
    add_custom_command(TARGET rawduck_xnvme POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
      COMMAND ${CMAKE_COMMAND} -E copy_if_different $<TARGET_FILE:rawduck_xnvme> ${folder} VERBATIM)
  endif()
endfunction()

pkg_check_modules(XNVME QUIET IMPORTED_TARGET xnvme>=0.7.5)
if(NOT XNVME_FOUND)
  message(STATUS "xNVMe: not found by pkg-config; the engine xnvme:<interface> is left out")
  return()
endif()
message(STATUS "xNVMe: ${XNVME_VERSION} in ${XNVME_LIBDIR}")

file(GLOB RAWDUCK_XNVME_SOURCES CONFIGURE_DEPENDS src/io/engine/xnvme/module/*.cpp)
add_library(rawduck_xnvme MODULE ${RAWDUCK_XNVME_SOURCES})
target_include_directories(rawduck_xnvme PRIVATE src)
target_link_libraries(rawduck_xnvme PRIVATE PkgConfig::XNVME)
# It finds the library where it was found now, also after it has been installed into the Python package.
set_target_properties(rawduck_xnvme PROPERTIES CXX_VISIBILITY_PRESET hidden INSTALL_RPATH_USE_LINK_PATH ON)
