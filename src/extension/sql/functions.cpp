#include "extension/sql/functions.hpp"

#include "extension/sql/volume_rows.hpp"

#include <cstdlib>
#include <string>

namespace rawduck {
namespace {

//! Tests and benchmarks set it, before the extension is loaded. They use what users have installed, in both
//! forms of the extension, and the simulated devices live in its memory: an extension of its own for these
//! functions would have other ones.
constexpr const char *TEST_FUNCTIONS_VARIABLE = "RAWDUCK_TEST_FUNCTIONS";

bool TestFunctionsAreWanted() {
    const char *value = std::getenv(TEST_FUNCTIONS_VARIABLE);
    return value && value == std::string("1");
}

} // namespace

void RegisterFunctions(duckdb::ExtensionLoader &loader) {
    AnswerAboutVolumes();
    RegisterVolumeFunctions(loader);
    RegisterFileFunctions(loader);
    RegisterSnapshotFunctions(loader);
    RegisterStatsFunctions(loader);
    RegisterFormatFunction(loader);
    RegisterOccupantsFunction(loader);
    RegisterCheckFunction(loader);
    RegisterGrowFunction(loader);
    RegisterTrimFunction(loader);
    RegisterDeviceFunction(loader);
    RegisterFdpFunction(loader);
    RegisterCopyFunction(loader);
    RegisterMoveFunction(loader);
    RegisterDefragmentFunction(loader);
    RegisterSendFunction(loader);
    RegisterReceiveFunctions(loader);
    RegisterMemoryFunction(loader);
    if (TestFunctionsAreWanted()) {
        RegisterSimulateFunction(loader);
        RegisterRandomReadsFunction(loader);
    }
}

} // namespace rawduck
