#include "extension/sql/functions.hpp"

namespace rawduck {

void RegisterFunctions(duckdb::ExtensionLoader &loader) {
    RegisterVolumeFunctions(loader);
    RegisterFileFunctions(loader);
    RegisterStatsFunctions(loader);
    RegisterFormatFunction(loader);
    RegisterCheckFunction(loader);
    RegisterTrimFunction(loader);
    RegisterDeviceFunction(loader);
    RegisterFdpFunction(loader);
    RegisterCopyFunction(loader);
    RegisterSimulateFunction(loader);
    RegisterRandomReadsFunction(loader);
}

} // namespace rawduck
