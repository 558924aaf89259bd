# rawduck_ceph: rados:// paths in DuckDB, a DuckDB extension of its own because it needs librados.
find_path(RAWDUCK_RADOS_INCLUDE rados/librados.hpp)
find_library(RAWDUCK_RADOS_LIBRARY rados)
if(NOT RAWDUCK_RADOS_INCLUDE OR NOT RAWDUCK_RADOS_LIBRARY)
  message(STATUS "rawduck_ceph is left out: librados was not found; on Debian and Ubuntu: "
                 "apt-get install librados-dev libradospp-dev")
  return()
endif()

file(GLOB_RECURSE RAWDUCK_CEPH_SOURCES CONFIGURE_DEPENDS ceph/*.cpp)
list(FILTER RAWDUCK_CEPH_SOURCES EXCLUDE REGEX "/ceph/(osd|channel|helper)/")
# Of the main extension, what knows nothing of volumes.
list(APPEND RAWDUCK_CEPH_SOURCES src/common/error.cpp src/extension/file_systems/errors.cpp src/common/text/pattern.cpp
     src/extension/sql/row_function.cpp src/common/crc32c.cpp)
add_library(rawduck_ceph_host MODULE ${RAWDUCK_CEPH_SOURCES})
rawduck_extension_target(rawduck_ceph_host)
target_include_directories(rawduck_ceph_host PRIVATE ${CMAKE_SOURCE_DIR} src)
target_include_directories(rawduck_ceph_host SYSTEM PRIVATE ${RAWDUCK_DUCKDB_DIR}/third_party/lz4)
# Named as an option, the folder of the C library's headers would come before those of libstdc++.
if(NOT RAWDUCK_RADOS_INCLUDE STREQUAL "${CMAKE_SYSROOT}/usr/include")
  target_include_directories(rawduck_ceph_host SYSTEM PRIVATE ${RAWDUCK_RADOS_INCLUDE})
endif()
target_link_libraries(rawduck_ceph_host PRIVATE ${RAWDUCK_RADOS_LIBRARY} Threads::Threads)
rawduck_host_form(rawduck_ceph rawduck_ceph_host
                  "librados is missing where it was not built: on Debian and Ubuntu apt-get install librados2.")
# The same for the package rawduck-ceph (python/ceph_package).
install(TARGETS rawduck_ceph_host LIBRARY DESTINATION rawduck_ceph COMPONENT ceph)
install(PROGRAMS ${RAWDUCK_OUTPUT_DIR}/rawduck_ceph.duckdb_extension DESTINATION rawduck_ceph COMPONENT ceph)
