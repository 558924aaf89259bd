#include "volume/check.hpp"

#include "common/error.hpp"
#include "volume/registry.hpp"
#include "volume/volume_image.hpp"

#include <algorithm>
#include <cstring>

namespace rawduck {

namespace {

using Severity = CheckFinding::Severity;

std::string Count(uint64_t count, const std::string &noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

void ReportSuperblocks(const VolumeImage &image, std::vector<CheckFinding> &findings) {
    for (int i = 0; i < 2; i++) {
        const SuperblockState &copy = image.copies[i];
        findings.push_back(
            {copy.valid ? Severity::OK : Severity::WARNING, "superblock " + std::to_string(i),
             copy.valid ? "valid" : copy.problem + "; the other one is used, the next write repairs it"});
    }
}

void ReportLog(const VolumeImage &image, std::vector<CheckFinding> &findings) {
    const Superblock &sb = image.superblock;
    findings.push_back({Severity::OK, "snapshot",
                        "epoch " + std::to_string(sb.epoch) + ", " + Count(sb.snapshot_bytes, "byte")});
    if (!image.damage.empty()) {
        findings.push_back({Severity::ERROR, "log", image.damage});
        return;
    }
    findings.push_back({Severity::OK, "log",
                        Count(image.log_records, "record") + ", " + Count(image.log_bytes, "byte") +
                            (image.torn_tail ? ", and an unfinished one that was never acknowledged" : "")});
}

//! The main header of a DuckDB database file: "DUCK" behind the checksum of the first page.
bool HasDatabaseHeader(BlockIo &io, const CatalogEntry &entry) {
    char page[UNIT_SIZE];
    io.Read(entry.extents.front().start * UNIT_SIZE, page, UNIT_SIZE);
    return memcmp(page + 8, "DUCK", 4) == 0;
}

void ReportFiles(BlockIo &io, const VolumeImage &image, std::vector<CheckFinding> &findings) {
    for (const auto &[id, entry] : image.catalog->Entries()) {
        if (entry.kind == FileKind::DIRECTORY) {
            continue;
        }
        const bool is_database = entry.kind == FileKind::DATABASE && entry.size >= UNIT_SIZE;
        const bool sound = !is_database || HasDatabaseHeader(io, entry);
        findings.push_back({sound ? Severity::OK : Severity::ERROR, "file " + entry.name,
                            sound ? Count(entry.size, "byte") + " in " + Count(entry.extents.size(), "extent")
                                  : "its first page is not the header of a DuckDB database"});
    }
}

void ReportSpace(const VolumeImage &image, std::vector<CheckFinding> &findings) {
    uint64_t used = 0;
    for (const auto &[id, entry] : image.catalog->Entries()) {
        used += entry.Units();
    }
    const uint64_t total = image.superblock.data_end - image.superblock.data_start;
    for (const std::string &problem : image.catalog->Verify()) {
        findings.push_back({Severity::ERROR, "space", problem});
    }
    findings.push_back(
        {Severity::OK, "space",
         std::to_string(used * UNIT_SIZE) + " of " + std::to_string(total * UNIT_SIZE) + " bytes in use"});
}

} // namespace

std::vector<CheckFinding> CheckVolume(const std::string &target_name) {
    const Target target = ResolveTarget(target_name);
    TargetLock lock(target, TargetLock::Mode::SHARED);
    DeviceOptions options;
    options.read_only = true;
    BlockIo io(OpenDevice(target, options), BlockIoOptions(), target.name, std::make_shared<IoStats>());
    std::vector<CheckFinding> findings;
    try {
        const VolumeImage image = LoadVolumeImage(io, target.name);
        ReportSuperblocks(image, findings);
        ReportLog(image, findings);
        ReportFiles(io, image, findings);
        ReportSpace(image, findings);
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::CORRUPT && error.Code() != ErrorCode::UNSUPPORTED) {
            throw;
        }
        findings.push_back({Severity::ERROR, "volume", error.what()});
    }
    return findings;
}

} // namespace rawduck
