//! The SQL functions of the extension. Each group has a file of its own.
#pragma once

namespace duckdb {
class ExtensionLoader;
}

namespace rawduck {

void RegisterVolumeFunctions(duckdb::ExtensionLoader &loader);    //!< nvme_volumes, nvme_info
void RegisterFileFunctions(duckdb::ExtensionLoader &loader);      //!< nvme_files, nvme_remove
void RegisterSnapshotFunctions(duckdb::ExtensionLoader &loader);  //!< nvme_snapshot, nvme_clone and others
void RegisterStatsFunctions(duckdb::ExtensionLoader &loader);     //!< nvme_stats, nvme_reset_stats
void RegisterFormatFunction(duckdb::ExtensionLoader &loader);     //!< nvme_format
void RegisterOccupantsFunction(duckdb::ExtensionLoader &loader);  //!< nvme_occupants
void RegisterCheckFunction(duckdb::ExtensionLoader &loader);      //!< nvme_check
void RegisterGrowFunction(duckdb::ExtensionLoader &loader);       //!< nvme_grow
void RegisterTrimFunction(duckdb::ExtensionLoader &loader);       //!< nvme_trim
void RegisterDeviceFunction(duckdb::ExtensionLoader &loader);     //!< nvme_devices
void RegisterFdpFunction(duckdb::ExtensionLoader &loader);        //!< nvme_fdp
void RegisterCopyFunction(duckdb::ExtensionLoader &loader);       //!< nvme_copy
void RegisterMoveFunction(duckdb::ExtensionLoader &loader);       //!< nvme_move
void RegisterDefragmentFunction(duckdb::ExtensionLoader &loader); //!< nvme_defragment
void RegisterSendFunction(duckdb::ExtensionLoader &loader);       //!< nvme_send
void RegisterReceiveFunctions(duckdb::ExtensionLoader &loader); //!< nvme_receive, nvme_verify, nvme_received
void RegisterMemoryFunction(duckdb::ExtensionLoader &loader);   //!< nvme_memory

// For tests and benchmarks.
void RegisterSimulateFunction(duckdb::ExtensionLoader &loader);    //!< nvme_simulate
void RegisterRandomReadsFunction(duckdb::ExtensionLoader &loader); //!< nvme_random_reads

//! All of them; those for tests and benchmarks only where RAWDUCK_TEST_FUNCTIONS=1 stands in the environment.
void RegisterFunctions(duckdb::ExtensionLoader &loader);

} // namespace rawduck
