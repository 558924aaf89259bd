# Unit tests of the core: one GoogleTest binary, run by ctest.
find_package(GTest REQUIRED)
enable_testing()
file(GLOB RAWDUCK_UNIT_SOURCES CONFIGURE_DEPENDS test/unit/*.cpp)
add_executable(rawduck_unit_tests ${RAWDUCK_UNIT_SOURCES})
target_include_directories(rawduck_unit_tests PRIVATE test/unit)
target_link_libraries(rawduck_unit_tests PRIVATE rawduck_core GTest::gtest GTest::gtest_main)
add_test(NAME unit COMMAND rawduck_unit_tests)

# The engines on an NVMe namespace; scripts/test_nvme.sh runs it in a guest with emulated ones.
add_executable(rawduck_nvme_tests test/nvme/nvme_device_test.cpp)
target_include_directories(rawduck_nvme_tests PRIVATE test/unit)
target_link_libraries(rawduck_nvme_tests PRIVATE rawduck_core GTest::gtest GTest::gtest_main)
