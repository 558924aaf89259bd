# Measurements of the core that need no DuckDB.
add_executable(volume_bench bench/volume_bench.cpp bench/tree_rows.cpp)
target_link_libraries(volume_bench PRIVATE rawduck_core)
