# The extension in its static form: it brings DuckDB's code with it, so it loads into programs that export no
# symbols, such as the official command-line client. scripts/build_static.sh builds what this needs.
set(RAWDUCK_DUCKDB_BUILD "${CMAKE_SOURCE_DIR}/build/static/duckdb" CACHE PATH
    "Build tree of DuckDB with libduckdb_static.a and libduckdb_loadable_extensions.a")

find_library(RAWDUCK_LIBDUCKDB duckdb_static PATHS ${RAWDUCK_DUCKDB_BUILD}/src NO_DEFAULT_PATH)
find_library(RAWDUCK_LIBLOADABLE duckdb_loadable_extensions PATHS ${RAWDUCK_DUCKDB_BUILD}/src/main/extension
             NO_DEFAULT_PATH)
if(NOT RAWDUCK_LIBDUCKDB OR NOT RAWDUCK_LIBLOADABLE)
  message(FATAL_ERROR "RAWDUCK_STATIC: ${RAWDUCK_DUCKDB_BUILD} has no libduckdb_static.a or no "
                      "libduckdb_loadable_extensions.a; run scripts/build_static.sh")
endif()

add_library(rawduck_static MODULE ${RAWDUCK_EXTENSION_SOURCES})
rawduck_extension_target(rawduck_static)
target_compile_options(rawduck_static PRIVATE -ffunction-sections -fdata-sections)
target_link_libraries(rawduck_static PRIVATE rawduck_core ${RAWDUCK_LIBDUCKDB} ${CMAKE_DL_LIBS})
# Only the entry point is visible: two copies of DuckDB in one process must not see each other's symbols.
target_link_options(rawduck_static PRIVATE -Wl,--gc-sections -Wl,--exclude-libs,ALL
                    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/static_exports.map $<$<CONFIG:Release>:-s>)
set_target_properties(rawduck_static PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/static_exports.map)
rawduck_stamp(rawduck_static ${CMAKE_BINARY_DIR}/static/rawduck.duckdb_extension)
rawduck_with_xnvme(rawduck_static ${CMAKE_BINARY_DIR}/static)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/static)

# A program with DuckDB linked in that exports nothing, to test both forms against.
add_executable(rawduck_static_host test/static/host.cpp)
target_include_directories(rawduck_static_host SYSTEM PRIVATE ${RAWDUCK_DUCKDB_DIR}/src/include)
target_link_libraries(rawduck_static_host PRIVATE ${RAWDUCK_LIBLOADABLE} ${RAWDUCK_LIBDUCKDB} Threads::Threads
                      ${CMAKE_DL_LIBS})
target_link_options(rawduck_static_host PRIVATE -Wl,--gc-sections)
