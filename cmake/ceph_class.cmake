# The object class for Ceph's OSDs, libcls_rawduck.so. It takes DuckDB's code from DuckDB's Python package, and so
# builds in a minute: an OSD that loads it has that package's module inside, but never runs Python.
find_path(RAWDUCK_OBJCLASS_DIR rados/objclass.h)

file(GLOB RAWDUCK_CLASS_SOURCES CONFIGURE_DEPENDS ceph/protocol/*.cpp ceph/parquet/*.cpp ceph/query/*.cpp
     ceph/osd/*.cpp)
list(FILTER RAWDUCK_CLASS_SOURCES EXCLUDE REGEX "cls_rawduck\\.cpp$")
list(APPEND RAWDUCK_CLASS_SOURCES src/common/crc32c.cpp)

# DuckDB's Python module, and the library whose symbols it takes for granted.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import _duckdb, sys; print(_duckdb.__file__, *sys.version_info[:2], sep=';')"
  OUTPUT_VARIABLE RAWDUCK_MODULE_INFO OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(RAWDUCK_MODULE_INFO)
  list(GET RAWDUCK_MODULE_INFO 0 RAWDUCK_DUCKDB_MODULE)
  list(GET RAWDUCK_MODULE_INFO 1 RAWDUCK_PYTHON_MAJOR)
  list(GET RAWDUCK_MODULE_INFO 2 RAWDUCK_PYTHON_MINOR)
  find_library(RAWDUCK_LIBPYTHON libpython${RAWDUCK_PYTHON_MAJOR}.${RAWDUCK_PYTHON_MINOR}.so.1.0)
endif()

function(rawduck_class_options target)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR} src)
  target_include_directories(${target} SYSTEM PRIVATE ${RAWDUCK_DUCKDB_DIR}/src/include
                             ${RAWDUCK_DUCKDB_DIR}/third_party/lz4)
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-g1>)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(ceph/osd/cls_rawduck.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Takes DuckDB from the Python package: by file name, since the module has no soname and no name like lib….
function(rawduck_link_module target)
  get_filename_component(module_name ${RAWDUCK_DUCKDB_MODULE} NAME)
  get_filename_component(module_dir ${RAWDUCK_DUCKDB_MODULE} DIRECTORY)
  target_link_directories(${target} PRIVATE ${module_dir})
  target_link_libraries(${target} PRIVATE -l:${module_name} ${RAWDUCK_LIBPYTHON})
  set_target_properties(${target} PROPERTIES BUILD_RPATH ${module_dir} INSTALL_RPATH ${module_dir})
endfunction()

function(rawduck_class_target target directory)
  add_library(${target} MODULE ceph/osd/cls_rawduck.cpp ${ARGN})
  rawduck_class_options(${target})
  target_include_directories(${target} SYSTEM PRIVATE ${RAWDUCK_OBJCLASS_DIR})
  # The OSD knows the class by a few symbols; everything else, DuckDB's own above all, stays inside.
  target_link_options(${target} PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/class_exports.map)
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/class_exports.map
                        OUTPUT_NAME cls_rawduck LIBRARY_OUTPUT_DIRECTORY ${directory})
endfunction()

if(NOT RAWDUCK_DUCKDB_MODULE OR NOT RAWDUCK_LIBPYTHON)
  message(STATUS "The object class is left out: ${Python_EXECUTABLE} has no duckdb package, or there is no libpython "
                 "for it (scripts/bootstrap_ceph.sh)")
  return()
endif()
add_library(rawduck_class_objects OBJECT EXCLUDE_FROM_ALL ${RAWDUCK_CLASS_SOURCES})
rawduck_class_options(rawduck_class_objects)

if(RAWDUCK_OBJCLASS_DIR)
  rawduck_class_target(rawduck_class ${CMAKE_BINARY_DIR}/class $<TARGET_OBJECTS:rawduck_class_objects>)
  rawduck_link_module(rawduck_class)
  # Lies in the Python package too. An OSD loads it through a link, so that $ORIGIN would lead nowhere.
  add_dependencies(rawduck_extensions rawduck_class)
  install(TARGETS rawduck_class LIBRARY DESTINATION rawduck/class COMPONENT extension)
else()
  message(STATUS "The object class is left out: no rados/objclass.h (scripts/bootstrap_ceph.sh installs it)")
endif()
if(RAWDUCK_TESTS)
  find_package(GTest REQUIRED)
  file(GLOB RAWDUCK_CEPH_TEST_SOURCES CONFIGURE_DEPENDS test/ceph_duckdb/*.cpp)
  # Of the client, what needs DuckDB but no Ceph.
  add_executable(rawduck_ceph_tests EXCLUDE_FROM_ALL ${RAWDUCK_CEPH_TEST_SOURCES}
                 ceph/pushdown/decision/offload_decision.cpp $<TARGET_OBJECTS:rawduck_class_objects>)
  rawduck_class_options(rawduck_ceph_tests)
  set_target_properties(rawduck_ceph_tests PROPERTIES UNITY_BUILD OFF)
  rawduck_link_module(rawduck_ceph_tests)
  target_link_libraries(rawduck_ceph_tests PRIVATE GTest::gtest GTest::gtest_main Threads::Threads)
endif()
