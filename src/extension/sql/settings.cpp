#include "extension/sql/settings.hpp"

#include "extension/file_systems/errors.hpp"
#include "extension/file_systems/settings.hpp"

#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/main/extension/extension_loader.hpp"

namespace rawduck {
namespace {

using duckdb::ClientContext;
using duckdb::LogicalType;
using duckdb::SetScope;
using duckdb::Value;

constexpr const char *LATER = " Applies to volumes and files opened afterwards.";

void OnSetEngine(ClientContext &, SetScope, Value &value) {
    Translated([&] { CheckEngine(value.ToString()); });
}
void OnSetQueueMode(ClientContext &, SetScope, Value &value) {
    Translated([&] { ParseQueueMode(value.ToString()); });
}
void OnSetQueueDepth(ClientContext &, SetScope, Value &value) {
    Translated([&] { CheckQueueDepth(value.IsNull() ? 0 : value.GetValue<int64_t>()); });
}
void OnSetMaxTransfer(ClientContext &, SetScope, Value &value) {
    Translated([&] { ParseMaxTransfer(value.ToString()); });
}
void OnSetPlacement(ClientContext &, SetScope, Value &value) {
    Translated([&] { ParsePlacement(value.ToString()); });
}
void OnSetDeallocate(ClientContext &, SetScope, Value &value) {
    Translated([&] { ParseDeallocateMode(value.ToString()); });
}
void OnSetMemorySize(ClientContext &, SetScope, Value &value) {
    Translated([&] { ParseMemorySize(value.ToString()); });
}
void OnSetSpillBuffer(ClientContext &, SetScope, Value &value) {
    Translated([&] { ParseBufferSize(value.ToString(), SETTING_SPILL_BUFFER); });
}

void OnSetRereadBuffer(ClientContext &, SetScope, Value &value) {
    Translated([&] { ParseBufferSize(value.ToString(), SETTING_REREAD_BUFFER); });
}

} // namespace

void RegisterSettings(duckdb::ExtensionLoader &loader) {
    auto &config = duckdb::DBConfig::GetConfig(loader.GetDatabaseInstance());
    auto add = [&](const char *name, const std::string &description, const LogicalType &type,
                   const Value &initial, duckdb::set_option_callback_t check) {
        // Global by default: files are also opened where there
        // is no session, such as by checkpoints and spilling.
        config.AddExtensionOption(duckdb::Identifier(name), description + LATER, type, initial, check,
                                  SetScope::GLOBAL);
    };
    add(SETTING_ENGINE,
        "How nvme:// and direct:// reach the device: auto, io_uring, posix, for NVMe namespaces "
        "io_uring_cmd or nvme_ioctl, or xnvme:<interface> where xNVMe is installed.",
        LogicalType::VARCHAR, Value("auto"), OnSetEngine);
    add(SETTING_QUEUE_MODE,
        "How threads share the device's queues: thread (each has its own), pool (several, each behind a "
        "lock), "
        "single (one, behind a lock) or sync (none: a thread waits for each command).",
        LogicalType::VARCHAR, Value("thread"), OnSetQueueMode);
    add(SETTING_QUEUE_DEPTH, "Commands in flight per queue, 1 to 4096.", LogicalType::BIGINT,
        Value::BIGINT(32), OnSetQueueDepth);
    add(SETTING_MAX_TRANSFER,
        "Largest command, such as '256 KiB', up to 64 MiB; 0: the default of the device.",
        LogicalType::VARCHAR, Value("0"), OnSetMaxTransfer);
    add(SETTING_MEMORY_SIZE,
        "Size of a volume nvme://memory:<name> that is made by being used, such as '4 GiB'.",
        LogicalType::VARCHAR, Value("1 GiB"), OnSetMemorySize);
    add(SETTING_PLACEMENT,
        "Where NVMe namespaces with flexible data placement (FDP) put what is written: auto, off, or a "
        "placement identifier per class, such as 'database=0,wal=1,temporary=2,metadata=3'; nvme_fdp() shows "
        "what there is.",
        LogicalType::VARCHAR, Value("auto"), OnSetPlacement);
    add(SETTING_POLLING,
        "Whether engine io_uring_cmd polls for completions instead of waiting for interrupts: less latency "
        "for "
        "more CPU time, where the NVMe driver has polling queues (its parameter poll_queues).",
        LogicalType::BOOLEAN, Value::BOOLEAN(false), nullptr);
    add(SETTING_SPILL_BUFFER,
        "Memory of each volume for spilled blocks, which wait in it to be written, stay in it while there is "
        "room, and are read ahead into it, such as '32 MiB'; 0: a thread that spills or reads what was "
        "spilled waits for the device.",
        LogicalType::VARCHAR, Value("28 MiB"), OnSetSpillBuffer);
    add(SETTING_REREAD_BUFFER,
        "Memory of each volume or direct:// database for blocks that were read a moment ago, for when DuckDB "
        "is short of memory and reads them again, such as '16 MiB'; 0: it waits for the device again.",
        LogicalType::VARCHAR, Value("16 MiB"), OnSetRereadBuffer);
    add(SETTING_DEALLOCATE,
        "Whether the device is told of freed space: auto (but not on regular files, which keep theirs), on "
        "or "
        "off.",
        LogicalType::VARCHAR, Value("auto"), OnSetDeallocate);
    add(SETTING_PREFETCH,
        "Whether scans of nvme:// and direct:// databases read ahead in runs of up to 32 MiB.",
        LogicalType::BOOLEAN, Value::BOOLEAN(true), nullptr);
}

} // namespace rawduck
