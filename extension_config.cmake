# Read by DuckDB's own build, which builds the extension from this tree as it builds its own extensions:
#   cmake -S <DuckDB's source> -DDUCKDB_EXTENSION_CONFIGS=<this file>
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/CMakeLists.txt RAWDUCK_PROJECT REGEX "^project\\(rawduck VERSION ")
string(REGEX REPLACE ".* VERSION ([0-9.]+) .*" "\\1" RAWDUCK_VERSION "${RAWDUCK_PROJECT}")
duckdb_extension_load(rawduck
  SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR}
  INCLUDE_DIR ${CMAKE_CURRENT_LIST_DIR}/src
  TEST_DIR ${CMAKE_CURRENT_LIST_DIR}/test/sqllogic
  LOAD_TESTS
  EXTENSION_VERSION ${RAWDUCK_VERSION})
