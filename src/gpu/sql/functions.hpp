//! The SQL functions of tables on the GPU.
#pragma once

namespace duckdb {
class ExtensionLoader;
}

namespace rawduck::gpu {

void RegisterSegmentsFunction(duckdb::ExtensionLoader &loader); //!< gpu_segments
void RegisterOpenFunction(duckdb::ExtensionLoader &loader);     //!< gpu_open_scan
void RegisterQueryFunction(duckdb::ExtensionLoader &loader);    //!< gpu_open_query

} // namespace rawduck::gpu
