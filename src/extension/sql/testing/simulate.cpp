//! nvme_simulate(target, ...): makes simulated devices, breaks them, and cuts their power.
#include "common/text/size.hpp"
#include "extension/file_systems/sandbox.hpp"
#include "extension/sql/functions.hpp"
#include "extension/sql/target_argument.hpp"

#include "common/error.hpp"
#include "io/device/simulated/simulated_device.hpp"
#include "target/target.hpp"

namespace rawduck {
namespace {

using duckdb::LogicalType;
using duckdb::Value;

std::string SimulatedName(const std::string &target_name, const char *what) {
    const Target target = ResolveTarget(target_name);
    if (target.kind != TargetKind::SIMULATED) {
        throw Error(ErrorCode::INVALID,
                    target_name + ": " + what + " must be a simulated target, such as simulated:disk");
    }
    return target.path;
}

uint64_t Count(const Arguments &arguments, const char *name, uint64_t otherwise) {
    const Value &value = arguments.Named(name);
    const int64_t count = value.IsNull() ? static_cast<int64_t>(otherwise) : value.GetValue<int64_t>();
    if (count < 0) {
        throw Error(ErrorCode::INVALID, std::string(name) + " must not be negative: " + value.ToString());
    }
    return static_cast<uint64_t>(count);
}

void Create(const std::string &name, const Arguments &arguments) {
    SimulatedOptions options;
    options.capacity_bytes = ParseSize(arguments.NamedText("size", "0"), "size");
    options.lba_size = static_cast<uint32_t>(ParseSize(arguments.NamedText("lba_size", "4096"), "lba_size"));
    options.atomic_write_bytes =
        static_cast<uint32_t>(ParseSize(arguments.NamedText("atomic_write", "0"), "atomic_write"));
    options.volatile_write_cache = arguments.NamedFlag("write_cache");
    options.fua = arguments.NamedFlag("fua") ? SimulatedFua::HONOURED : SimulatedFua::NONE;
    options.latency_us = Count(arguments, "latency_us", 0);
    options.seed = Count(arguments, "seed", 0);
    CreateSimulatedTarget(name, options);
}

//! What the LBAs from `first` on hold.
Value ReadLbas(SimulatedMedium &medium, const std::string &target, uint64_t first, uint64_t count) {
    const uint64_t lba_size = medium.Options().lba_size, lbas = medium.CapacityBytes() / lba_size;
    if (first >= lbas || count > lbas - first) {
        throw Error(ErrorCode::INVALID, target + ": there are only " + std::to_string(lbas) + " LBAs");
    }
    std::string bytes(count * lba_size, '\0');
    const int64_t result = medium.Read(first * lba_size, &bytes[0], bytes.size());
    if (result < 0) {
        throw Error(ErrorCode::IO, target + ": read of " + std::to_string(count) + " LBAs from LBA " +
                                       std::to_string(first) +
                                       " on failed: " + ErrnoText(static_cast<int>(-result)));
    }
    return Value::BLOB(duckdb::const_data_ptr_cast(bytes.data()), bytes.size());
}

Rows SimulateRow(duckdb::ClientContext &context, const Arguments &arguments) {
    const std::string target = AllowedTarget(context, arguments);
    const std::string name = SimulatedName(target, "the target");
    if (!arguments.Named("size").IsNull()) {
        Create(name, arguments);
    }
    std::shared_ptr<SimulatedMedium> medium = FindSimulatedTarget(name);
    if (!arguments.Named("grow").IsNull()) {
        medium->Grow(ParseSize(arguments.NamedText("grow", "0"), "grow"));
    }
    const uint64_t at = Count(arguments, "at", medium->Events());
    const std::string fault = arguments.NamedText("fault", "");
    const std::string survivor_name = arguments.NamedText("survivor", "");
    if (!survivor_name.empty()) {
        Sandbox(context).RequireVolume(survivor_name);
    }
    if (!fault.empty()) {
        medium->Inject(ParseSimulatedFault(fault), at);
    }
    Value content(LogicalType::BLOB);
    if (!arguments.Named("read").IsNull()) {
        content = ReadLbas(*medium, target, Count(arguments, "read", 0), Count(arguments, "lbas", 1));
    }
    const uint64_t events = medium->Events(), capacity = medium->CapacityBytes();
    const bool power_is_on = medium->PowerIsOn();
    PowerCutReport report;
    if (!survivor_name.empty()) {
        auto survivor = medium->PowerCut(at, Count(arguments, "seed", 0), report);
        medium.reset(); // it may be the one that is replaced
        PutSimulatedTarget(SimulatedName(survivor_name, "survivor"), std::move(survivor));
    }
    return {{Value(target), Value::UBIGINT(events), Value(power_is_on ? "on" : "off"),
             Value::UBIGINT(report.units_survived), Value::UBIGINT(report.units_lost),
             Value::UBIGINT(report.units_garbage), Value::UBIGINT(report.writes_torn), content,
             Value::UBIGINT(capacity)}};
}

} // namespace

void RegisterSimulateFunction(duckdb::ExtensionLoader &loader) {
    duckdb::FunctionSignature signature = TargetSignature();
    signature.AddKeywordOnly("size", LogicalType::ANY, Value(LogicalType::VARCHAR));
    signature.AddKeywordOnly("grow", LogicalType::ANY, Value(LogicalType::VARCHAR));
    signature.AddKeywordOnly("lba_size", LogicalType::ANY, Value("4096"));
    signature.AddKeywordOnly("atomic_write", LogicalType::ANY, Value("0"));
    signature.AddKeywordOnly("write_cache", LogicalType::BOOLEAN, Value::BOOLEAN(true));
    signature.AddKeywordOnly("fua", LogicalType::BOOLEAN, Value::BOOLEAN(true));
    signature.AddKeywordOnly("latency_us", LogicalType::BIGINT, Value::BIGINT(0));
    signature.AddKeywordOnly("seed", LogicalType::BIGINT, Value::BIGINT(0));
    signature.AddKeywordOnly("fault", LogicalType::VARCHAR, Value(""));
    signature.AddKeywordOnly("at", LogicalType::BIGINT, Value(LogicalType::BIGINT));
    signature.AddKeywordOnly("read", LogicalType::BIGINT, Value(LogicalType::BIGINT));
    signature.AddKeywordOnly("lbas", LogicalType::BIGINT, Value::BIGINT(1));
    signature.AddKeywordOnly("survivor", LogicalType::VARCHAR, Value(""));
    RegisterRowFunction(loader,
                        {"nvme_simulate",
                         "Makes a simulated device, lets it fail, reads its LBAs, or shows what a power "
                         "cut leaves of it; for tests and research",
                         "CALL nvme_simulate('simulated:a', at := 120, seed := 7, survivor := 'simulated:b')",
                         signature,
                         {{"target", LogicalType::VARCHAR},
                          {"events", LogicalType::UBIGINT},
                          {"power", LogicalType::VARCHAR},
                          {"units_survived", LogicalType::UBIGINT},
                          {"units_lost", LogicalType::UBIGINT},
                          {"units_garbage", LogicalType::UBIGINT},
                          {"writes_torn", LogicalType::UBIGINT},
                          {"content", LogicalType::BLOB},
                          {"capacity", LogicalType::UBIGINT}},
                         SimulateRow});
}

} // namespace rawduck
