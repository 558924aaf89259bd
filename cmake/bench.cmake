# Measurements of the core that need no DuckDB.
add_executable(volume_bench bench/volume_bench.cpp)
target_link_libraries(volume_bench PRIVATE rawduck_core)
add_executable(command_bench bench/command_bench.cpp)
target_link_libraries(command_bench PRIVATE rawduck_core)
