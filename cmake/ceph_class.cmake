# Ceph's object class, libcls_rawduck.so, which is free of DuckDB, and rawduck-osd-helper, which it starts. The helper
# takes DuckDB's code from DuckDB's Python package, and so builds in a minute; it never runs Python.
find_path(RAWDUCK_OBJCLASS_DIR rados/objclass.h)

# Of both.
file(GLOB RAWDUCK_CHANNEL_SOURCES CONFIGURE_DEPENDS ceph/protocol/*.cpp ceph/parquet/*.cpp ceph/channel/*.cpp)
list(APPEND RAWDUCK_CHANNEL_SOURCES src/common/crc32c.cpp)
file(GLOB RAWDUCK_CLASS_SOURCES CONFIGURE_DEPENDS ceph/osd/*.cpp)
file(GLOB RAWDUCK_HELPER_SOURCES CONFIGURE_DEPENDS ceph/query/*.cpp ceph/helper/supervisor/*.cpp
     ceph/helper/worker/*.cpp)

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
  target_compile_definitions(${target} PRIVATE RAWDUCK_DUCKDB_VERSION="${RAWDUCK_DUCKDB_VERSION}")
endfunction()

# Takes DuckDB from the Python package: by file name, since the module has no soname and no name like lib….
function(rawduck_link_module target)
  get_filename_component(module_name ${RAWDUCK_DUCKDB_MODULE} NAME)
  get_filename_component(module_dir ${RAWDUCK_DUCKDB_MODULE} DIRECTORY)
  target_link_directories(${target} PRIVATE ${module_dir})
  target_link_libraries(${target} PRIVATE -l:${module_name} ${RAWDUCK_LIBPYTHON})
  set_target_properties(${target} PROPERTIES BUILD_RPATH ${module_dir} INSTALL_RPATH ${module_dir})
endfunction()

if(NOT RAWDUCK_DUCKDB_MODULE OR NOT RAWDUCK_LIBPYTHON)
  message(STATUS "The object class is left out: ${Python_EXECUTABLE} has no duckdb package, or there is no libpython "
                 "for it (scripts/bootstrap_ceph.sh)")
  return()
endif()
add_library(rawduck_helper_objects OBJECT EXCLUDE_FROM_ALL ${RAWDUCK_CHANNEL_SOURCES} ${RAWDUCK_HELPER_SOURCES})
rawduck_class_options(rawduck_helper_objects)

if(RAWDUCK_OBJCLASS_DIR)
  add_library(rawduck_class MODULE ${RAWDUCK_CHANNEL_SOURCES} ${RAWDUCK_CLASS_SOURCES})
  rawduck_class_options(rawduck_class)
  target_include_directories(rawduck_class SYSTEM PRIVATE ${RAWDUCK_OBJCLASS_DIR})
  # The OSD knows the class by a few symbols; everything else stays inside.
  target_link_options(rawduck_class PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/class_exports.map)
  set_target_properties(rawduck_class PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/class_exports.map
                        OUTPUT_NAME cls_rawduck LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/class)
  add_executable(rawduck_osd_helper ceph/helper/main.cpp $<TARGET_OBJECTS:rawduck_helper_objects>)
  rawduck_class_options(rawduck_osd_helper)
  rawduck_link_module(rawduck_osd_helper)
  set_target_properties(rawduck_osd_helper PROPERTIES OUTPUT_NAME rawduck-osd-helper
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/class)
  add_dependencies(rawduck_extensions rawduck_class rawduck_osd_helper)
  # Beside each other, in the Python package: the class finds the helper there.
  install(TARGETS rawduck_class LIBRARY DESTINATION rawduck/class COMPONENT extension)
  install(TARGETS rawduck_osd_helper RUNTIME DESTINATION rawduck/class COMPONENT extension)
else()
  message(STATUS "The object class is left out: no rados/objclass.h (scripts/bootstrap_ceph.sh installs it)")
endif()
if(RAWDUCK_TESTS)
  find_package(GTest REQUIRED)
  # Of the client, what needs DuckDB but no Ceph.
  file(GLOB RAWDUCK_CEPH_TEST_SOURCES CONFIGURE_DEPENDS test/ceph_duckdb/*.cpp ceph/pushdown/proof/*.cpp)
  add_executable(rawduck_ceph_tests EXCLUDE_FROM_ALL ${RAWDUCK_CEPH_TEST_SOURCES}
                 ceph/pushdown/decision/offload_decision.cpp
                 ceph/pushdown/feedback/processor_quota.cpp $<TARGET_OBJECTS:rawduck_helper_objects>)
  rawduck_class_options(rawduck_ceph_tests)
  set_target_properties(rawduck_ceph_tests PROPERTIES UNITY_BUILD OFF)
  rawduck_link_module(rawduck_ceph_tests)
  target_link_libraries(rawduck_ceph_tests PRIVATE GTest::gtest GTest::gtest_main Threads::Threads)
endif()
