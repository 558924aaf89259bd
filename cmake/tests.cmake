# Unit tests of the core: one GoogleTest binary, run by ctest.
set(RAWDUCK_GTEST_SOURCE "" CACHE PATH "GoogleTest's source, for another architecture; empty: the system's library")
if(RAWDUCK_GTEST_SOURCE)
  add_subdirectory(${RAWDUCK_GTEST_SOURCE} googletest EXCLUDE_FROM_ALL)
else()
  find_package(GTest REQUIRED)
endif()
enable_testing()
file(GLOB_RECURSE RAWDUCK_UNIT_SOURCES CONFIGURE_DEPENDS test/unit/*.cpp)
list(FILTER RAWDUCK_UNIT_SOURCES EXCLUDE REGEX "xnvme_other_version.cpp$")
# Of what runs inside Ceph, what needs neither Ceph nor DuckDB.
file(GLOB RAWDUCK_CEPH_BYTES_SOURCES CONFIGURE_DEPENDS ceph/protocol/*.cpp ceph/parquet/*.cpp ceph/channel/*.cpp
     ceph/helper/supervisor/*.cpp ceph/helper/worker/handed_over_object.cpp
     ceph/rados/connection/osd_counts.cpp)
add_executable(rawduck_unit_tests ${RAWDUCK_UNIT_SOURCES} ${RAWDUCK_CEPH_BYTES_SOURCES})
rawduck_compile_by_folder(rawduck_unit_tests ${RAWDUCK_UNIT_SOURCES} ${RAWDUCK_CEPH_BYTES_SOURCES})
target_include_directories(rawduck_unit_tests PRIVATE test/unit test ${CMAKE_SOURCE_DIR})
target_link_libraries(rawduck_unit_tests PRIVATE rawduck_core GTest::gtest GTest::gtest_main)
# In place of NVIDIA's driver, for tests of how it is called; those of Python load it from here, too.
add_library(cuda_checker MODULE test/cuda_checker/cuda_checker.cpp test/cuda_checker/controls.cpp
            test/cuda_checker/memory.cpp
            test/cuda_checker/streams.cpp src/gpu/kernels/host_kernels.cpp)
target_include_directories(cuda_checker PRIVATE src test)
set_target_properties(cuda_checker PROPERTIES CXX_VISIBILITY_PRESET hidden)
# In place of NVIDIA's cuFile, for tests of the benchmark.
add_library(cufile_stand_in MODULE test/cuda_checker/cufile_stand_in.cpp)
target_link_libraries(cufile_stand_in PRIVATE ${CMAKE_DL_LIBS})
# A module of another version of the interface, which must be refused.
add_library(xnvme_other_version MODULE test/unit/io/engine/xnvme_other_version.cpp)
target_include_directories(xnvme_other_version PRIVATE src)
target_compile_definitions(rawduck_unit_tests PRIVATE
  RAWDUCK_OTHER_XNVME_MODULE="$<TARGET_FILE:xnvme_other_version>"
  RAWDUCK_CUDA_CHECKER="$<TARGET_FILE:cuda_checker>"
  RAWDUCK_STOCK_SEGMENTS="${CMAKE_SOURCE_DIR}/test/fuzz/corpus/decode_fuzz")
add_dependencies(rawduck_unit_tests xnvme_other_version cuda_checker)
rawduck_with_xnvme(rawduck_unit_tests $<TARGET_FILE_DIR:rawduck_unit_tests>)
add_test(NAME unit COMMAND rawduck_unit_tests)

# The engines on an NVMe namespace; test/nvme/run.sh runs it in a guest with emulated ones.
add_executable(rawduck_nvme_tests test/nvme/nvme_device_test.cpp test/nvme/vfio_device_test.cpp)
target_include_directories(rawduck_nvme_tests PRIVATE test/unit)
target_link_libraries(rawduck_nvme_tests PRIVATE rawduck_core GTest::gtest GTest::gtest_main)
rawduck_with_xnvme(rawduck_nvme_tests $<TARGET_FILE_DIR:rawduck_nvme_tests>)
