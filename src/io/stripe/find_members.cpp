#include "io/stripe/find_members.hpp"

#include "common/error.hpp"
#include "target/nvme/nvme_node.hpp"
#include "target/occupants/loop_device.hpp"
#include "target/system/sysfs.hpp"

#include <algorithm>
#include <set>
#include <sys/stat.h>

namespace rawduck {
namespace {

class MemberSearch {
  public:
    MemberSearch(const Target &named, const MemberHeader &header, const HeaderReader &read)
        : named_(BlockDeviceOf(named)), header_(header), read_(read), found_(header.count) {}

    Stripe Run() {
        Add(named_, header_.index);
        for (size_t i = 0; i < header_.count; i++) {
            Look(RecordedName(header_, i).path);
        }
        if (!EachIsWhereItWas()) {
            named_.kind == TargetKind::REGULAR_FILE ? LookIntoFolders() : LookAtDevices();
        }
        RequireEachOnce();
        return Found();
    }

  private:
    void Add(const Target &target, size_t index) {
        if (seen_.insert(target.identity).second) {
            found_[index].push_back(target);
        }
    }

    //! A path that leads to no target, or to one that cannot be read, is not a member's.
    void Look(const std::string &path) {
        Target target;
        HeaderCopies copies;
        try {
            if (path.empty() || (target = ResolveTarget(path)).kind == TargetKind::NVME_CHARACTER_DEVICE ||
                seen_.count(target.identity) != 0) {
                return;
            }
            copies = read_(target);
        } catch (const Error &) {
            return;
        }
        const MemberHeader *header = copies.Newest();
        if (header && header->stripe == header_.stripe && header->index < header_.count) {
            Add(target, header->index);
        }
    }

    bool EachIsWhereItWas() const {
        for (size_t i = 0; i < found_.size(); i++) {
            if (found_[i].size() != 1 || !(NameOf(found_[i][0]) == RecordedName(header_, i))) {
                return false;
            }
        }
        return true;
    }

    void LookAtDevices() {
        if (!HasNode(named_.kind)) {
            return;
        }
        for (const std::string &disk : ListDirectory("/sys/block")) {
            LookAtDevice("/sys/block/" + disk);
            for (const std::string &part : ListDirectory("/sys/block/" + disk)) {
                if (IsPartition("/sys/block/" + disk + "/" + part)) {
                    LookAtDevice("/sys/block/" + disk + "/" + part);
                }
            }
        }
    }

    // A loop device over a block device is that one's bytes, and no copy. It was looked at by itself.
    void LookAtDevice(const std::string &sysfs_directory) {
        std::string name = BaseName(sysfs_directory);
        std::replace(name.begin(), name.end(), '!', '/'); // sysfs's spelling of a subdirectory of /dev
        const dev_t number = DeviceNumber(ReadAttribute(sysfs_directory + "/dev"));
        const std::optional<Backing> backing = BackingOf(number, -1);
        if (!backing || backing->number == 0) {
            Look("/dev/" + name);
        }
    }

    void LookIntoFolders() {
        std::set<std::string> folders{FolderOf(named_.path)};
        for (size_t i = 0; i < header_.count; i++) {
            folders.insert(FolderOf(RecordedName(header_, i).path));
        }
        for (const std::string &folder : folders) {
            for (const std::string &name : ListDirectory(folder)) {
                struct stat status;
                const std::string path = folder + "/" + name;
                if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                    static_cast<uint64_t>(status.st_size) > header_.data_start) {
                    Look(path);
                }
            }
        }
    }

    static std::string FolderOf(const std::string &path) {
        return path.substr(0, path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
    }

    std::string MemberText(size_t index) const {
        return "member " + std::to_string(index) + " of " + std::to_string(header_.count);
    }

    void RequireEachOnce() const {
        std::string missing, there;
        for (size_t i = 0; i < found_.size(); i++) {
            if (found_[i].size() > 1) {
                throw Error(
                    ErrorCode::INVALID,
                    named_.name + ": " + MemberText(i) + " is there twice: " + found_[i][0].path + " and " +
                        found_[i][1].path +
                        ". One is a copy of the other, and with the wrong one data would be lost. Take "
                        "the one away that is not in use, or erase it (rawduck format --force)");
            }
            const std::string name = NameText(RecordedName(header_, i));
            if (found_[i].empty()) {
                missing += (missing.empty() ? "" : "; ") + MemberText(i) + ", which was " + name + ", UUID " +
                           UuidText(header_.members[i].uuid);
            } else {
                there += (there.empty() ? "" : ", ") + found_[i][0].path;
            }
        }
        if (!missing.empty()) {
            throw Error(ErrorCode::NOT_FOUND,
                        named_.name + ": it is striped over " + std::to_string(header_.count) +
                            " targets, and without all of them nothing can be read. Missing: " + missing +
                            ". Found: " + there + ". Plug in what is missing" +
                            (named_.kind == TargetKind::REGULAR_FILE
                                 ? ", or put the file into the folder of the others"
                                 : "; it is found wherever it is") +
                            ", and make sure that this user may read it");
        }
    }

    Stripe Found() const {
        Stripe stripe;
        stripe.uuid = header_.stripe;
        stripe.chunk_bytes = header_.chunk_bytes;
        stripe.data_start = header_.data_start;
        for (size_t i = 0; i < found_.size(); i++) {
            StripeMember member;
            member.target = found_[i][0];
            member.uuid = header_.members[i].uuid;
            member.name = NameOf(member.target);
            stripe.members.push_back(std::move(member));
        }
        return stripe;
    }

    const Target named_;
    const MemberHeader &header_;
    const HeaderReader &read_;
    std::vector<std::vector<Target>> found_; //!< by index
    std::set<std::string> seen_;             //!< identities
};

//! The nodes that take passthrough commands.
void UseGenericDevices(Stripe &stripe) {
    for (StripeMember &member : stripe.members) {
        struct stat status;
        const std::string path =
            stat(member.target.path.c_str(), &status) == 0 ? NvmeGenericPath(status.st_rdev) : "";
        if (path.empty()) {
            throw Error(ErrorCode::UNSUPPORTED,
                        member.target.path + ": it has no generic character device (/dev/ngXnY), as other "
                                             "members of its stripe have; name a block device instead");
        }
        member.target = ResolveTarget(path);
    }
}

} // namespace

Stripe FindMembers(const Target &named, const MemberHeader &header, const HeaderReader &read) {
    Stripe stripe = MemberSearch(named, header, read).Run();
    if (named.kind == TargetKind::NVME_CHARACTER_DEVICE) {
        UseGenericDevices(stripe);
    }
    return stripe;
}

} // namespace rawduck
