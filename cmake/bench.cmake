# Measurements of the core that need no DuckDB.
foreach(name volume_bench read_bench command_bench)
  add_executable(${name} bench/${name}.cpp)
  target_link_libraries(${name} PRIVATE rawduck_core)
endforeach()
rawduck_with_xnvme(command_bench $<TARGET_FILE_DIR:command_bench>)
target_sources(volume_bench PRIVATE bench/tree_rows.cpp)
