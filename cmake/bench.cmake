# Measurements of the core that need no DuckDB.
foreach(name volume_bench read_bench command_bench)
  add_executable(${name} bench/${name}.cpp)
  target_link_libraries(${name} PRIVATE rawduck_core)
endforeach()
target_sources(volume_bench PRIVATE bench/tree_rows.cpp)
