# The DuckDB extension in its host form: rawduck.duckdb_extension, the entry object that DuckDB loads, and
# librawduck_host.so, the extension proper, which takes DuckDB's symbols from the process (src/extension/loader.cpp).
set(RAWDUCK_DUCKDB_SOURCE "" CACHE PATH "DuckDB's source (external/duckdb of its sdist); empty: fetched from PyPI")

find_package(Python COMPONENTS Interpreter REQUIRED)

set(RAWDUCK_DUCKDB_DIR "${RAWDUCK_DUCKDB_SOURCE}")
if(NOT RAWDUCK_DUCKDB_DIR)
  # All build trees below build/ share one copy.
  string(FIND "${CMAKE_BINARY_DIR}/" "${CMAKE_SOURCE_DIR}/build/" RAWDUCK_IN_TREE)
  if(RAWDUCK_IN_TREE EQUAL 0)
    set(RAWDUCK_FETCH_DIR "${CMAKE_SOURCE_DIR}/build")
  else()
    set(RAWDUCK_FETCH_DIR "${CMAKE_BINARY_DIR}")
  endif()
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/python/rawduck/duckdb_source.py ${RAWDUCK_FETCH_DIR}
    OUTPUT_VARIABLE RAWDUCK_DUCKDB_DIR OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE RAWDUCK_FETCH_RESULT)
  if(NOT RAWDUCK_FETCH_RESULT EQUAL 0)
    message(FATAL_ERROR "DuckDB's source is missing; python/rawduck/duckdb_source.py says why above")
  endif()
endif()
if(NOT EXISTS "${RAWDUCK_DUCKDB_DIR}/src/include/duckdb.hpp")
  message(FATAL_ERROR "RAWDUCK_DUCKDB_SOURCE=${RAWDUCK_DUCKDB_DIR} has no src/include/duckdb.hpp; "
                      "name external/duckdb of DuckDB's extracted sdist")
endif()

set(RAWDUCK_OUTPUT_DIR "${CMAKE_BINARY_DIR}/extension")

# What all extensions share. DuckDB's headers are not ours to warn about.
function(rawduck_extension_target target)
  target_include_directories(${target} SYSTEM PRIVATE ${RAWDUCK_DUCKDB_DIR}/src/include
                             ${RAWDUCK_DUCKDB_DIR}/third_party/fmt/include
                             ${RAWDUCK_DUCKDB_DIR}/third_party/utf8proc/include)
  target_compile_definitions(${target} PRIVATE RAWDUCK_DUCKDB_VERSION="${RAWDUCK_DUCKDB_VERSION}"
                                               RAWDUCK_VERSION="${PROJECT_VERSION}")
  # Most of the time of a compilation goes into reading DuckDB's headers: read them for several sources at once.
  # (A precompiled header does the same, but ccache does not cache what uses one.)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  # Line tables suffice to read a backtrace; full debug information of DuckDB's headers is 20 times the code.
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-g1>)
endfunction()

# Stamps the footer onto a module and puts it where `LOAD` finds it.
function(rawduck_stamp target file)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/append_footer.py $<TARGET_FILE:${target}> ${file}
            --duckdb-version ${RAWDUCK_DUCKDB_VERSION} --extension-version ${PROJECT_VERSION}
            --architecture ${CMAKE_SYSTEM_PROCESSOR}
    BYPRODUCTS ${file} VERBATIM)
endfunction()

# The host form of an extension: <name>.duckdb_extension, which finds its host (src/extension/loader.cpp), and beside it
# lib<target>.so, the extension proper. `hint` ends the message when that cannot be loaded.
function(rawduck_host_form name target hint)
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${RAWDUCK_OUTPUT_DIR})
  set(loader ${name}_loader)
  add_library(${loader} MODULE src/extension/loader.cpp)
  target_compile_definitions(${loader} PRIVATE RAWDUCK_DUCKDB_VERSION="${RAWDUCK_DUCKDB_VERSION}"
    RAWDUCK_NAME="${name}" RAWDUCK_ENTRY_POINT=${name}_duckdb_cpp_init RAWDUCK_LOAD_HINT="${hint}")
  target_link_libraries(${loader} PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(${loader} ${target})
  add_dependencies(rawduck_extensions ${loader})
  rawduck_stamp(${loader} ${RAWDUCK_OUTPUT_DIR}/${name}.duckdb_extension)

  # For the Python package: both objects lie inside it.
  install(TARGETS ${target} LIBRARY DESTINATION rawduck COMPONENT extension)
  install(PROGRAMS ${RAWDUCK_OUTPUT_DIR}/${name}.duckdb_extension DESTINATION rawduck COMPONENT extension)
endfunction()

# Everything that goes into the Python package.
add_custom_target(rawduck_extensions)

add_library(rawduck_host MODULE ${RAWDUCK_EXTENSION_SOURCES})
rawduck_extension_target(rawduck_host)
target_link_libraries(rawduck_host PRIVATE rawduck_core)
rawduck_host_form(rawduck rawduck_host "")
rawduck_with_xnvme(rawduck_host ${RAWDUCK_OUTPUT_DIR})
# What a wheel has inside, it has the licenses of.
if(RAWDUCK_SYSROOT)
  install(FILES ${RAWDUCK_SYSROOT}/usr/share/doc/libblkid/COPYING.LGPL-2.1-or-later DESTINATION rawduck/licenses
          RENAME libblkid COMPONENT extension)
  install(FILES ${RAWDUCK_SYSROOT}/usr/share/doc/liburing-dev/copyright DESTINATION rawduck/licenses
          RENAME liburing COMPONENT extension)
endif()
# Messages name pages of docs/; who installs a wheel has them, and the manual page, in share/ of the environment.
if(SKBUILD)
  install(FILES docs/rawduck.1 DESTINATION ${SKBUILD_DATA_DIR}/share/man/man1 COMPONENT extension)
  install(DIRECTORY docs DESTINATION ${SKBUILD_DATA_DIR}/share/doc/rawduck COMPONENT extension
          FILES_MATCHING PATTERN "*.md" PATTERN benchmarks EXCLUDE)
endif()
if(TARGET rawduck_xnvme)
  install(TARGETS rawduck_xnvme LIBRARY DESTINATION rawduck COMPONENT extension)
endif()
