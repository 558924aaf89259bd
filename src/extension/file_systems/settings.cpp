#include "extension/file_systems/settings.hpp"

#include "extension/file_systems/errors.hpp"
#include "extension/file_systems/settings_cache.hpp"
#include "extension/memory/duckdb_allocator.hpp"

#include "common/error.hpp"
#include "common/text/size.hpp"
#include "io/open_device.hpp"
#include "volume/mount/queue_options.hpp"

#include "duckdb/common/exception.hpp"
#include "duckdb/common/types/value.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/database.hpp"

#include <iterator>
#include <utility>

namespace rawduck {
namespace {

using duckdb::Value;

//! Of a setting that is a size, in bytes.
struct Bounds {
    uint64_t least, most;
};
constexpr uint64_t UNBOUNDED = UINT64_MAX;
constexpr Bounds NOT_A_SIZE = {0, UNBOUNDED}, A_VOLUME = {16 * MIB, UNBOUNDED}, A_BUFFER = {0, 64 * GIB};

//! Of a setting whose value may be left to us.
constexpr const char *AUTO = "auto";

struct Setting {
    const char *name;
    const char *help;
    Bounds bounds;
    //! What `options` say, as SQL. Of the default options it is the setting's default and gives its type.
    Value (*show)(const OpenOptions &options);
    //! Throws Error INVALID, naming the setting and what it accepts.
    void (*put)(const Setting &setting, const Value &value, OpenOptions &options);
};

uint64_t SizeWithinBounds(const Setting &setting, const Value &value) {
    const std::string text = value.ToString();
    const uint64_t bytes = ParseSize(text, setting.name);
    const std::string subject = std::string(setting.name) + ": " + text + " is ";
    if (bytes < setting.bounds.least) {
        throw Error(ErrorCode::INVALID, subject + "less than " + SizeText(setting.bounds.least));
    }
    if (bytes > setting.bounds.most) {
        throw Error(ErrorCode::INVALID, subject + "more than " + SizeText(setting.bounds.most));
    }
    return bytes;
}

uint64_t SizeOrAuto(const Setting &setting, const Value &value) {
    try {
        return SizeWithinBounds(setting, value);
    } catch (const Error &error) {
        throw Error(error.Code(), std::string(error.what()) + "; or auto");
    }
}

constexpr Setting SETTINGS[] = {
    {"nvme_engine",
     "How commands reach the device: auto, io_uring, posix, for NVMe namespaces io_uring_cmd or nvme_ioctl, "
     "or xnvme:<interface> where xNVMe is installed.",
     NOT_A_SIZE, [](const OpenOptions &options) { return Value(options.mount.engine); },
     [](const Setting &setting, const Value &value, OpenOptions &options) {
         options.mount.engine = value.ToString();
         RequireKnownEngine(options.mount.engine, setting.name);
     }},
    {"nvme_placement",
     "Where NVMe namespaces with flexible data placement (FDP) put what is written: auto, off, or a "
     "placement identifier per class, such as 'database=0,wal=1,temporary=2,metadata=3'; nvme_fdp() shows "
     "what there is.",
     NOT_A_SIZE, [](const OpenOptions &options) { return Value(options.mount.io.placement.Text()); },
     [](const Setting &, const Value &value, OpenOptions &options) {
         options.mount.io.placement = ParsePlacement(value.ToString());
     }},
    {"nvme_deallocate",
     "Whether the device is told of freed space: auto (but not on regular files, which keep theirs), on or "
     "off.",
     NOT_A_SIZE,
     [](const OpenOptions &options) { return Value(DeallocateModeName(options.mount.deallocate)); },
     [](const Setting &, const Value &value, OpenOptions &options) {
         options.mount.deallocate = ParseDeallocateMode(value.ToString());
     }},
    {"nvme_spill_buffer",
     "Memory of each volume for spilled blocks. They wait in it to be written, stay in it while there is "
     "room, and are prefetched into it. With 0, a thread that spills, or reads what was spilled, waits for "
     "the device. auto: 28 MiB, and up to a quarter of what the machine, and each control group of the "
     "process, "
     "has free beyond a reserve; what others take meanwhile shrinks it, and it is given back when there are "
     "no temporary files any more.",
     A_BUFFER,
     [](const OpenOptions &options) {
         const auto &bytes = options.mount.spill_buffer_bytes;
         return Value(bytes ? SizeText(*bytes) : AUTO);
     },
     [](const Setting &setting, const Value &value, OpenOptions &options) {
         options.mount.spill_buffer_bytes.reset();
         if (value.ToString() != AUTO) {
             options.mount.spill_buffer_bytes = SizeOrAuto(setting, value);
         }
     }},
    {"nvme_reread_buffer",
     "Memory of each volume or direct:// database for blocks that were read recently, for when DuckDB is "
     "short of memory and reads them again. With 0, it waits for the device again.",
     A_BUFFER,
     [](const OpenOptions &options) { return Value(SizeText(options.mount.io.reread_buffer_bytes)); },
     [](const Setting &setting, const Value &value, OpenOptions &options) {
         options.mount.io.reread_buffer_bytes = SizeWithinBounds(setting, value);
     }},
    {"nvme_prefetch",
     "Whether scans of nvme:// and direct:// databases read ahead, in runs of up to 32 MiB. "
     "While DuckDB spills they do not.",
     NOT_A_SIZE, [](const OpenOptions &options) { return Value::BOOLEAN(options.prefetch); },
     [](const Setting &, const Value &value, OpenOptions &options) {
         options.prefetch = value.IsNull() ? options.prefetch : value.GetValue<bool>();
     }},
    {"nvme_memory_size", "Size of a volume nvme://memory:<name> that is created by being used.", A_VOLUME,
     [](const OpenOptions &options) { return Value(SizeText(options.mount.memory_target_bytes)); },
     [](const Setting &setting, const Value &value, OpenOptions &options) {
         options.mount.memory_target_bytes = SizeWithinBounds(setting, value);
     }},
    {QUEUES_SETTING,
     "For comparing I/O paths: how the device's queues are used, as pairs such as 'mode=pool,depth=64'; what "
     "is not named has its default. mode: thread (each thread has its own queue), pool (several, each behind "
     "a lock), single (one, behind a lock) or sync (none: a thread waits for each command). depth: commands "
     "in flight per queue, 1 to 4096. max_transfer: the largest command, such as 256 KiB, up to 64 MiB; 0: "
     "the default of the device. polling: whether engines io_uring_cmd and vfio poll for completions (on) "
     "instead of waiting for interrupts (off), which takes less time and more CPU time; io_uring_cmd needs "
     "polling queues of the NVMe driver for it (its parameter poll_queues).",
     NOT_A_SIZE, [](const OpenOptions &options) { return Value(QueueOptionsText(options.mount)); },
     [](const Setting &, const Value &value, OpenOptions &options) {
         ParseQueueOptions(value.ToString(), options.mount);
     }}};

std::string DescriptionOf(const Setting &setting) {
    std::string text = setting.help;
    if (setting.bounds.least > 0) {
        text += " At least " + SizeText(setting.bounds.least) + ".";
    }
    if (setting.bounds.most < UNBOUNDED) {
        text += " At most " + SizeText(setting.bounds.most) + ".";
    }
    return text + " Applies to volumes and files opened afterwards.";
}

//! DuckDB's callback knows nothing but the value, so each row has one of its own.
template <size_t ROW> void CheckValue(duckdb::ClientContext &, duckdb::SetScope, Value &value) {
    Translated([&] {
        OpenOptions unused;
        SETTINGS[ROW].put(SETTINGS[ROW], value, unused);
    });
}

//! What the database was opened with, which DuckDB takes over as it is, and so in the setting's type. nullptr:
//! nothing. Throws where it has another type.
const Value *Given(duckdb::DBConfig &config, const char *name, const duckdb::LogicalType &type) {
    auto &given = config.options.unrecognized_options;
    const auto found = given.find(duckdb::Identifier(name));
    if (found == given.end()) {
        return nullptr;
    }
    const auto value = found->second.DefaultTryCastAs(type);
    if (!value) {
        throw duckdb::InvalidInputException("%s: cannot be %s, it is a %s", name, found->second.ToString(),
                                            type.ToString());
    }
    found->second = *value;
    return &found->second;
}

void Register(duckdb::DBConfig &config, const Setting &setting, duckdb::set_option_callback_t check) {
    const Value initial = setting.show(OpenOptions());
    if (const Value *const given = Given(config, setting.name, initial.type())) {
        Translated([&] {
            OpenOptions unused;
            setting.put(setting, *given, unused);
        });
    }
    // Global by default: files are also opened where there is no session, such as by checkpoints and spilling.
    config.AddExtensionOption(duckdb::Identifier(setting.name), DescriptionOf(setting), initial.type(),
                              initial, check, duckdb::SetScope::GLOBAL);
}

template <size_t... ROW> void RegisterRows(duckdb::DBConfig &config, std::index_sequence<ROW...>) {
    (Register(config, SETTINGS[ROW], CheckValue<ROW>), ...);
}

constexpr const char *BUFFER_MEMORY = "nvme_buffer_memory";

//! Not of files that are opened: it applies to the whole instance, and at once.
void RegisterBufferMemory(duckdb::DatabaseInstance &database) {
    const auto type = duckdb::LogicalType::BOOLEAN;
    const Value *const given = Given(database.config, BUFFER_MEMORY, type);
    UseBufferMemory(database, !given || given->IsNull() || given->GetValue<bool>());
    database.config.AddExtensionOption(
        duckdb::Identifier(BUFFER_MEMORY),
        "Whether DuckDB's blocks of 256 KiB, and what it reads ahead into, are in memory of rawduck's. "
        "Devices "
        "write to it directly, it is used again, and it has huge pages where the system is quick to give "
        "them; "
        "nvme_memory() shows it. Applies to memory that is allocated afterwards.",
        type, Value::BOOLEAN(true),
        [](duckdb::ClientContext &context, duckdb::SetScope, Value &value) {
            UseBufferMemory(*context.db, value.IsNull() || value.GetValue<bool>());
        },
        duckdb::SetScope::GLOBAL);
}

bool Lookup(duckdb::optional_ptr<duckdb::FileOpener> opener, const char *name, Value &value) {
    if (const auto database = duckdb::FileOpener::TryGetDatabase(opener)) {
        KeepSettingsReadable(*database);
    }
    return duckdb::FileOpener::TryGetCurrentSetting(opener, duckdb::Identifier(name), value) &&
           !value.IsNull();
}

} // namespace

void RegisterSettings(duckdb::DatabaseInstance &database) {
    RegisterRows(database.config, std::make_index_sequence<std::size(SETTINGS)>());
    RegisterBufferMemory(database);
}

OpenOptions OpenOptionsOf(duckdb::optional_ptr<duckdb::FileOpener> opener) {
    OpenOptions options;
    Value value;
    for (const Setting &setting : SETTINGS) {
        if (Lookup(opener, setting.name, value)) {
            setting.put(setting, value, options);
        }
    }
    return options;
}

Interrupted InterruptedOf(const duckdb::ClientContext &context) {
    return [&context] { return context.IsInterrupted(); };
}

MountOptions MountOptionsOf(duckdb::optional_ptr<duckdb::FileOpener> opener) {
    MountOptions options = OpenOptionsOf(opener).mount;
    if (const auto context = duckdb::FileOpener::TryGetClientContext(opener)) {
        options.interrupted = InterruptedOf(*context);
    }
    return options;
}

} // namespace rawduck
