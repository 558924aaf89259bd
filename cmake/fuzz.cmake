# libFuzzer targets, with ASan and UBSan. Configure with CXX=clang++.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "RAWDUCK_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
endif()
set(RAWDUCK_FUZZ_FLAGS -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
target_compile_options(rawduck_core PRIVATE ${RAWDUCK_FUZZ_FLAGS})

function(rawduck_fuzz_target name)
  add_executable(${name} test/fuzz/${name}.cpp ${ARGN})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  target_link_libraries(${name} PRIVATE rawduck_core)
endfunction()

rawduck_fuzz_target(decode_fuzz)
rawduck_fuzz_target(mount_fuzz)
rawduck_fuzz_target(record_fuzz)
rawduck_fuzz_target(stream_fuzz)
rawduck_fuzz_target(text_fuzz)
file(GLOB RAWDUCK_CEPH_FUZZ_SOURCES CONFIGURE_DEPENDS ceph/protocol/*.cpp ceph/parquet/*.cpp ceph/channel/*.cpp
     ceph/helper/worker/handed_over_object.cpp)
rawduck_fuzz_target(ceph_fuzz ${RAWDUCK_CEPH_FUZZ_SOURCES})
target_include_directories(ceph_fuzz PRIVATE ${CMAKE_SOURCE_DIR})
