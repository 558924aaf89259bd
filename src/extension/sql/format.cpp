//! nvme_format(target, ...): writes an empty volume. nvme_occupants(target, ...): what that would destroy.
//! nvme_grow(target, ...): makes one as large as its target.
#include "common/text/size.hpp"
#include "extension/file_systems/sandbox.hpp"
#include "extension/file_systems/settings.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/target_argument.hpp"

#include "volume/registry.hpp"
#include "volume/setup/consent.hpp"

#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_data.hpp"

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

//! The default of `agreed`, which no identity can be.
Value WhateverItIs() {
    return Value::LIST(LogicalType::VARCHAR, {Value("*")});
}

FormatOptions OptionsOf(const Arguments &arguments) {
    FormatOptions options;
    options.size_bytes = ParseSize(arguments.NamedText("size", "0"), "size");
    options.lba_size = static_cast<uint32_t>(ParseSize(arguments.NamedText("lba_size", "0"), "lba_size"));
    options.force = arguments.NamedFlag("force");
    options.label = arguments.NamedText("label", "");
    options.chunk_bytes = ParseSize(arguments.NamedText("chunk", "0"), "chunk");
    const Value &agreed = arguments.Named("agreed");
    if (agreed.IsNull()) { // list() of no rows, a variable that was never set: nobody meant "whatever it is"
        throw duckdb::InvalidInputException(
            "agreed is NULL; give a list of identities, coalesce(list(identity), []) of nvme_occupants(), or "
            "leave it out to destroy whatever is there");
    }
    if (agreed == WhateverItIs()) {
        return options;
    }
    if (!options.force) {
        throw duckdb::InvalidInputException(
            "agreed lists what may be destroyed, and without force nothing is; say force := true, too");
    }
    options.agreed.emplace();
    for (const Value &identity : duckdb::ListValue::GetChildren(agreed)) {
        options.agreed->push_back(identity.ToString());
    }
    return options;
}

//! Those that the volume is striped over, the first one included; none when it lies on that alone.
std::vector<std::string> StripedOver(duckdb::ClientContext &context, const std::string &target,
                                     const Arguments &arguments) {
    const Value &others = arguments.Named("stripe_with");
    std::vector<std::string> names;
    if (others.IsNull() || duckdb::ListValue::GetChildren(others).empty()) {
        return names;
    }
    names.push_back(target);
    const Sandbox sandbox(context);
    for (const Value &other : duckdb::ListValue::GetChildren(others)) {
        if (other.IsNull() || other.ToString().empty()) {
            throw duckdb::InvalidInputException("stripe_with names a target that is NULL or empty");
        }
        names.push_back(TargetOf(other.ToString()));
        sandbox.RequireVolume(names.back());
    }
    return names;
}

Rows FormatRow(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string target = AllowedTarget(context, arguments);
    const FormatOptions options = OptionsOf(arguments);
    const std::vector<std::string> striped = StripedOver(context, target, arguments);
    if (striped.empty() && options.chunk_bytes != 0) {
        throw duckdb::InvalidInputException("a chunk is of a volume on several targets; name the others, too "
                                            "(stripe_with)");
    }
    striped.empty() ? Volume::Format(target, options) : Volume::FormatStripe(striped, options);
    auto opener = duckdb::ClientData::Get(context).file_opener.get();
    const VolumeInfo info = PinVolume(target, MountOptionsOf(opener))->Info();
    return {{Value(info.target), Value(info.uuid), Value::UBIGINT(info.capacity_bytes),
             Value::UBIGINT(info.lba_size)}};
}

Rows OccupantRows(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string target = AllowedTarget(context, arguments);
    std::vector<std::string> names = StripedOver(context, target, arguments);
    if (names.empty()) {
        names.push_back(target);
    }
    Rows rows;
    for (const ExaminedTarget &examined : ExamineTargets(names)) {
        for (const Occupant &occupant : examined.occupants) {
            rows.push_back({Value(examined.name), Value(occupant.kind), Value(occupant.what),
                            TextOrNull(occupant.uuid), Value(occupant.identity)});
        }
    }
    return rows;
}

Rows GrowRow(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string target = AllowedTarget(context, arguments);
    const uint64_t size = ParseSize(arguments.NamedText("size", "0"), "size");
    auto opener = duckdb::ClientData::Get(context).file_opener.get();
    auto volume = PinVolume(target, MountOptionsOf(opener));
    const VolumeGrowth growth = volume->Grow(size);
    return {{Value(volume->Info().target), Value::UBIGINT(growth.after_bytes),
             Value::UBIGINT(growth.after_bytes - growth.before_bytes)}};
}

} // namespace

void RegisterFormatFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature = TargetSignature();
    const LogicalType texts = LogicalType::LIST(LogicalType::VARCHAR);
    // Any type, so that both '8G' and 8589934592 are a size.
    signature.AddKeywordOnly("size", LogicalType::ANY, Value(LogicalType::VARCHAR));
    signature.AddKeywordOnly("lba_size", LogicalType::ANY, Value(LogicalType::VARCHAR));
    signature.AddKeywordOnly("force", LogicalType::BOOLEAN, Value::BOOLEAN(false));
    signature.AddKeywordOnly("agreed", texts, WhateverItIs());
    signature.AddKeywordOnly("label", LogicalType::VARCHAR, Value(""));
    signature.AddKeywordOnly("stripe_with", texts, Value(texts));
    signature.AddKeywordOnly("chunk", LogicalType::ANY, Value(LogicalType::VARCHAR));
    RegisterRowFunction(
        loader,
        {"nvme_format",
         "Writes an empty volume to a device, or to a file of the given size. Refuses a "
         "target that holds something. size: such as '8G', of a file or a volume in memory; "
         "NULL: as it is. lba_size: 512 or 4096; NULL: the device's, 4096 for files. force: "
         "destroy what is there, but nothing that is mounted. agreed: only if exactly these lie "
         "there, which are identities from nvme_occupants(); ['*']: whatever it is. label: at most 63 "
         "bytes. stripe_with: "
         "more targets, over all of which the volume is striped; size is then that of each "
         "file. chunk: how many bytes of it lie on one before the next one's turn, a power of "
         "two from 16K to 16M; NULL: 256K.",
         "CALL nvme_format('/data/store.rawduck', size := '8G')",
         signature,
         {{"target", LogicalType::VARCHAR, "The target"},
          {"uuid", LogicalType::VARCHAR, "Of the new volume"},
          {"capacity", LogicalType::UBIGINT, "Its bytes"},
          {"lba_size", LogicalType::UBIGINT, "Bytes of one of its LBAs"}},
         FormatRow});
}

void RegisterOccupantsFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature = TargetSignature();
    const LogicalType texts = LogicalType::LIST(LogicalType::VARCHAR);
    signature.AddKeywordOnly("stripe_with", texts, Value(texts));
    RegisterRowFunction(
        loader,
        {"nvme_occupants",
         "What nvme_format() with force would destroy; no rows where nothing lies there. An error, as from "
         "that, where "
         "the target is in use or cannot be examined. Nothing is written. stripe_with: more targets.",
         "SELECT target, description FROM nvme_occupants('/dev/nvme1n1')",
         signature,
         {{"target", LogicalType::VARCHAR, "The one of the targets that it lies on"},
          {"kind", LogicalType::VARCHAR,
           "volume, member (of one on several targets), database, file system, swap, raid, encrypted, "
           "signature, "
           "partition table, partitions, file or memory"},
          {"description", LogicalType::VARCHAR, "In words, with its label"},
          {"uuid", LogicalType::VARCHAR, "That it has, or the partition table; NULL when there is none"},
          {"identity", LogicalType::VARCHAR,
           "What nvme_format() takes in agreed: another one when something else lies there, or the same has "
           "changed"}},
         OccupantRows});
}

void RegisterGrowFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature = TargetSignature();
    // Any type, as that of nvme_format().
    signature.AddKeywordOnly("size", LogicalType::ANY, Value(LogicalType::VARCHAR));
    RegisterRowFunction(
        loader, {"nvme_grow",
                 "Makes a volume as large as its target, which was made larger; other connections go on "
                 "meanwhile. size: such as '200G', makes a regular file that large before, with all of its "
                 "space reserved; NULL: as it is. A volume that is as large already stays as it is.",
                 "CALL nvme_grow('/data/store.rawduck', size := '200G')",
                 signature,
                 {{"target", LogicalType::VARCHAR, "The target"},
                  {"capacity", LogicalType::UBIGINT, "Bytes that the volume has now"},
                  {"added", LogicalType::UBIGINT, "Bytes of them that it did not have before"}},
                 GrowRow});
}

} // namespace rawduck
