#include "volume/check.hpp"

#include "common/error.hpp"
#include "io/open_device.hpp"
#include "io/resolve_volume.hpp"
#include "target/lock/target_lock.hpp"
#include "volume/damage/load_volume.hpp"
#include "volume/damage/renew_metadata.hpp"
#include "volume/format/salvage_read.hpp"
#include "volume/journal/choose_tree_superblock.hpp"
#include "volume/mount/in_use.hpp"
#include "volume/registry.hpp"
#include "volume/requests/here_or_ask.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

namespace rawduck {

namespace {

using Severity = CheckFinding::Severity;

std::string CountText(uint64_t count, const std::string &noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

//! Of metadata pages, in memory.
constexpr uint64_t CACHE_BYTES = 64 * MIB;

constexpr const char *DROP_TAIL_TEXT = "drop the unfinished record at the end of the log";

std::string RewriteSuperblockText(const JournalImage &image) {
    return "write superblock " + std::to_string(1 - image.superblock_copy) + " anew from superblock " +
           std::to_string(image.superblock_copy) + ", with a new checkpoint";
}

std::string SuperblockText(const JournalImage &image, int number) {
    const SuperblockCopy &copy = image.copies[number];
    if (!copy.valid) {
        return copy.problem + "; the other one is used" +
               (image.damage.empty() ? ", the next write repairs it" : "");
    }
    return copy.sequence < image.superblock.sequence ? "valid; the other one is newer and is used" : "valid";
}

void ReportSuperblocks(const JournalImage &image, std::vector<CheckFinding> &findings) {
    const bool repairable = image.damage.empty() && !image.copies_agree;
    for (int i = 0; i < 2; i++) {
        findings.push_back({image.copies[i].valid ? Severity::OK : Severity::WARNING,
                            "superblock " + std::to_string(i), SuperblockText(image, i),
                            i != image.superblock_copy && repairable ? RewriteSuperblockText(image) : ""});
    }
}

void ReportSize(const BlockIo &io, const TreeSuperblock &superblock, std::vector<CheckFinding> &findings) {
    const uint64_t bytes = superblock.capacity_units * ALLOCATION_UNIT_BYTES;
    const uint64_t whole = AlignDown(io.CapacityBytes(), ALLOCATION_UNIT_BYTES);
    if (whole > bytes) {
        findings.push_back({Severity::OK, "size",
                            "the volume has " + std::to_string(bytes) + " bytes, and its target " +
                                std::to_string(whole) + ": `rawduck grow " + io.TargetName() +
                                "` uses the rest",
                            ""});
    }
}

constexpr const char *RENEW_MEMBERS_TEXT = "write anew what the members say of their stripe";

void ReportMembers(const std::vector<DeviceMember> &members, std::vector<CheckFinding> &findings) {
    for (size_t i = 0; i < members.size(); i++) {
        const DeviceMember &member = members[i];
        findings.push_back(
            {member.problem.empty() ? Severity::OK : Severity::WARNING, "member " + std::to_string(i),
             member.name + ", UUID " + member.uuid + (member.problem.empty() ? "" : ": " + member.problem),
             member.problem.empty() ? "" : RENEW_MEMBERS_TEXT});
    }
}

bool HasProblem(const std::vector<DeviceMember> &members) {
    return std::any_of(members.begin(), members.end(),
                       [](const DeviceMember &member) { return !member.problem.empty(); });
}

void ReportMetadata(const LoadedMetadata &metadata, std::vector<CheckFinding> &findings) {
    for (const std::string &problem : metadata.problems) {
        findings.push_back(
            {Severity::ERROR, "metadata",
             problem + ". It concerns the files that are named below, and no others: these can be copied "
                       "(rawduck cp); then format the volume anew",
             ""});
    }
    const MetadataTrees &trees = *metadata.trees;
    findings.push_back({Severity::OK, "checkpoint",
                        "generation " + std::to_string(metadata.image.superblock.generation & UINT32_MAX) +
                            " of mount " + std::to_string(MountOf(metadata.image.superblock.generation)) +
                            ", " + CountText(trees.pages.UsedPages(), "page"),
                        ""});
}

void ReportLog(const JournalImage &image, std::vector<CheckFinding> &findings) {
    if (!image.damage.empty() && image.damage_place != "metadata") {
        findings.push_back(
            {Severity::ERROR, image.damage_place,
             image.damage + ". What follows are the files as they were before that. They can be read: copy "
                            "what you need (rawduck cp), then format the volume anew. Nobody can tell what "
                            "the damaged part said, so it is not repaired",
             ""});
        return;
    }
    uint64_t records = 0, bytes = 0;
    for (const LogPart &part : image.log) {
        records += part.records;
        bytes += part.bytes;
    }
    findings.push_back(
        {Severity::OK, "log",
         CountText(records, "record") + ", " + CountText(bytes, "byte") +
             (image.torn_tail
                  ? ", and one that is not whole: cut off before it was acknowledged, or damaged since"
                  : ""),
         image.torn_tail && image.damage.empty() ? DROP_TAIL_TEXT : ""});
}

void RequireNotInterrupted(const std::string &target_name, const Interrupted &interrupted) {
    if (interrupted && interrupted()) {
        throw Error(ErrorCode::INTERRUPTED, target_name + ": interrupted while it was checked");
    }
}

//! What is wrong with a database file's first page, which holds DuckDB's main header: "DUCK" behind the
//! page's checksum. Empty when nothing is.
std::string HeaderProblem(BlockIo &io, const CatalogEntry &entry) {
    char page[ALLOCATION_UNIT_BYTES];
    UnreadableLbas unreadable;
    ReadAround(io, entry.extents.front().start * ALLOCATION_UNIT_BYTES, page, ALLOCATION_UNIT_BYTES,
               unreadable);
    if (!unreadable.empty()) {
        return "its first page cannot be read: " + unreadable.begin()->second;
    }
    // The place is part of it: beside a writer, which moves the page on, the same is found twice only where it lies.
    return memcmp(page + 8, "DUCK", 4) == 0
               ? ""
               : "its first page, at allocation unit " + std::to_string(entry.extents.front().start) +
                     ", is not the header of a DuckDB database";
}

bool IsOverwritten(const LoadedVolume &volume, const CatalogEntry &entry) {
    for (const Extent &extent : entry.extents) {
        for (const Extent &lost : volume.overwritten) {
            if (extent.start < lost.start + lost.units && lost.start < extent.start + extent.units) {
                return true;
            }
        }
    }
    return false;
}

//! Empty when all is well.
std::string FileProblem(BlockIo &io, const LoadedVolume &volume, const CatalogEntry &entry) {
    if (IsOverwritten(volume, entry)) {
        return "behind the damage, other data was written over part of it: that part cannot be read";
    }
    const bool is_database = entry.kind == FileKind::DATABASE && entry.size >= ALLOCATION_UNIT_BYTES;
    return is_database ? HeaderProblem(io, entry) : "";
}

void ReportFiles(BlockIo &io, const LoadedVolume &volume, const Interrupted &interrupted,
                 std::vector<CheckFinding> &findings) {
    for (const auto &[id, entry] : volume.files.entries) {
        RequireNotInterrupted(io.TargetName(), interrupted);
        if (entry.kind == FileKind::DIRECTORY) {
            continue;
        }
        const std::string problem = FileProblem(io, volume, entry);
        findings.push_back({problem.empty() ? Severity::OK : Severity::ERROR, "file " + entry.name,
                            problem.empty() ? CountText(entry.size, "byte") + " in " +
                                                  CountText(entry.extents.size(), "extent")
                                            : problem,
                            ""});
    }
    for (const auto &[id, lost] : volume.files.unreadable) {
        findings.push_back(
            {Severity::ERROR, "file " + lost.name, "its metadata cannot be read: " + lost.why, ""});
    }
}

void ReportSpace(const LoadedVolume &volume, std::vector<CheckFinding> &findings) {
    UnitCounts held; // which files may share
    for (const auto &[id, entry] : volume.files.entries) {
        for (const Extent &extent : entry.extents) {
            held.Set(extent.start, extent.units, 1);
        }
    }
    uint64_t used = 0;
    held.ForAll([&](const UnitCounts::Piece &piece) { used += piece.units; });
    const TreeSuperblock &sb = volume.metadata.image.superblock;
    const uint64_t total = sb.data_end - sb.data_start;
    findings.push_back({Severity::OK, "space",
                        std::to_string(used * ALLOCATION_UNIT_BYTES) + " of " +
                            std::to_string(total * ALLOCATION_UNIT_BYTES) + " bytes in use by files, " +
                            std::to_string(volume.metadata.trees->pages.Zones().size() * ZONE_UNITS *
                                           ALLOCATION_UNIT_BYTES) +
                            " by metadata",
                        ""});
}

std::vector<std::string> Repair(const Target &target) {
    const TargetReservation reservation(target, "repaired");
    TargetLock lock(target, TargetLock::Mode::EXCLUSIVE);
    RequireNoReaders(target, "repaired");
    DeviceOptions options;
    options.lock = &lock;
    BlockIo io(OpenDevice(target, options), BlockIoOptions(), target.name, std::make_shared<IoStats>());
    LoadedVolume volume = LoadVolume(io, CACHE_BYTES, CheckAfterLog::ALL);
    const JournalImage &image = volume.metadata.image;
    if ((image.superblock.ro_compat & ~KNOWN_RO_COMPAT) != 0) {
        throw Error(ErrorCode::UNSUPPORTED, target.name + ": the volume uses features that this rawduck can "
                                                          "only read; repair it with a newer rawduck");
    }
    std::vector<std::string> done;
    if (HasProblem(io.Members())) {
        io.BeginWriting();
        done.emplace_back(RENEW_MEMBERS_TEXT);
    }
    if (!image.damage.empty()) {
        return done;
    }
    if (!image.copies_agree) {
        done.push_back(RewriteSuperblockText(image));
    }
    if (image.torn_tail) {
        done.push_back(DROP_TAIL_TEXT);
    }
    if (!image.copies_agree || image.torn_tail) {
        io.BeginWriting();
        RenewMetadata(io, volume.metadata);
    }
    return done;
}

//! `lock`: null beside a writer.
std::unique_ptr<BlockIo> OpenToCheck(const Target &target, TargetLock *lock) {
    DeviceOptions options;
    options.read_only = true;
    options.lock = lock;
    return std::make_unique<BlockIo>(OpenDevice(target, options), BlockIoOptions(), target.name,
                                     std::make_shared<IoStats>());
}

std::vector<CheckFinding> Examine(BlockIo &io, const Interrupted &interrupted) {
    std::vector<CheckFinding> findings;
    try {
        const LoadedVolume volume = LoadVolume(io, CACHE_BYTES, CheckAfterLog::ALL);
        ReportMembers(io.Members(), findings);
        ReportSuperblocks(volume.metadata.image, findings);
        ReportSize(io, volume.metadata.image.superblock, findings);
        ReportMetadata(volume.metadata, findings);
        ReportLog(volume.metadata.image, findings);
        ReportFiles(io, volume, interrupted, findings);
        ReportSpace(volume, findings);
    } catch (const Error &error) {
        if (error.Code() != ErrorCode::CORRUPT && error.Code() != ErrorCode::UNSUPPORTED) {
            throw;
        }
        findings.push_back({Severity::ERROR, "volume", error.what(), ""});
    }
    return findings;
}

std::vector<CheckFinding> ExamineLocked(const Target &target, const Interrupted &interrupted) {
    TargetLock lock(target, TargetLock::Mode::SHARED);
    return Examine(*OpenToCheck(target, &lock), interrupted);
}

//! Of the checkpoint that counts now.
uint64_t SuperblockSequence(BlockIo &io) {
    JournalImage image;
    ChooseTreeSuperblock(io, image);
    return image.superblock.sequence;
}

//! What is written while it is read looks like damage. Real damage is there again, and is the same.
constexpr int LIVE_ATTEMPTS = 20;
constexpr std::chrono::milliseconds LIVE_PAUSE{20};

// What a checkpoint needs stays as it is until the next one counts, so that a crash finds it: as long as the superblock
// is the same, only the log and what was freed are written to.
std::vector<CheckFinding> ExamineBesideWriter(const Target &target, const Interrupted &interrupted) {
    const std::unique_ptr<BlockIo> io = OpenToCheck(target, nullptr);
    std::set<std::string> before;
    for (int i = 0; i < LIVE_ATTEMPTS; i++) {
        const uint64_t sequence = SuperblockSequence(*io);
        std::vector<CheckFinding> findings = Examine(*io, interrupted);
        std::set<std::string> problems;
        for (CheckFinding &finding : findings) {
            finding.repair.clear();
            if (finding.severity != Severity::OK) {
                problems.insert(finding.what + ": " + finding.detail);
            }
        }
        const bool steady = SuperblockSequence(*io) == sequence;
        if (problems.empty() || (steady && problems == before)) {
            findings.insert(findings.begin(),
                            {Severity::OK, "volume",
                             "it is open for writing: what follows is its last durable state", ""});
            return findings;
        }
        before = steady ? problems : std::set<std::string>();
        RequireNotInterrupted(target.name, interrupted);
        std::this_thread::sleep_for(LIVE_PAUSE);
    }
    throw Error(ErrorCode::LOCKED, target.name +
                                       ": it is written to faster than it can be checked; check it again "
                                       "when less is written, or when nobody has it open for writing");
}

} // namespace

std::vector<std::string> RepairVolume(const std::string &target_name) {
    return UseVolume(target_name, Repair);
}

std::vector<CheckFinding> CheckVolume(const std::string &target_name, const Interrupted &interrupted) {
    const Target target = ResolveVolume(target_name);
    const TargetReservation reservation(target, "checked", TargetReservation::WhenMounted::SHARE);
    const VolumePin &mounted = reservation.Mounted();
    std::vector<CheckFinding> findings;
    if (mounted) {
        try {
            mounted->RunWithoutWriters("checked", [&] { findings = ExamineLocked(target, interrupted); });
            return findings;
        } catch (const Error &error) {
            if (error.Code() != ErrorCode::LOCKED) {
                throw;
            }
        }
        return ExamineBesideWriter(target, interrupted);
    }
    bool written_to = false;
    AskOrDoHere(
        target, interrupted,
        [&] {
            const WriterRequest question{WriterRequest::Kind::LIST, 0, "", ""};
            return written_to = Ask(target, question, interrupted).has_value();
        },
        [&] {
            findings = UseVolume(target_name,
                                 [&](const Target &whole) { return ExamineLocked(whole, interrupted); });
        });
    return written_to ? ExamineBesideWriter(ResolveVolume(target_name, Headers::NOW), interrupted) : findings;
}

} // namespace rawduck
