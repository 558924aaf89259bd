#include "io/stripe/find_members.hpp"

#include "common/error.hpp"
#include "target/nvme/nvme_node.hpp"
#include "target/occupants/loop_device.hpp"
#include "target/occupants/same_bytes.hpp"
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
        seen_.insert(named_.identity);
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
    //! Another name of bytes that were found, as a loop device over them, is no copy.
    void Add(const Target &target, size_t index) {
        const std::vector<Target> &found = found_[index];
        const bool is_new = std::none_of(found.begin(), found.end(), [&](const Target &other) {
            return other.identity == target.identity || ShareBytes(other, target);
        });
        if (is_new) {
            found_[index].push_back(target);
        }
    }

    //! Of what cannot be read it is noted why: it may be a member all the same.
    void Look(const std::string &path) {
        MemberName name;
        name.path = path;
        HeaderCopies copies;
        Target target;
        try {
            if (path.empty() || (target = ResolveTarget(path)).kind == TargetKind::NVME_CHARACTER_DEVICE ||
                !seen_.insert(target.identity).second) {
                return;
            }
            name = NameOf(target);
            copies = read_(target);
        } catch (const Error &error) {
            if (error.Code() == ErrorCode::DESCRIPTORS) {
                throw; // of this process, and nothing that the member has
            }
            if (error.Code() != ErrorCode::NOT_FOUND && error.Code() != ErrorCode::INVALID) {
                unreadable_.push_back({name, error.what()});
            }
            return;
        }
        const MemberHeader *header = copies.Newest();
        if (header && header->stripe == header_.stripe) {
            if (header->count == header_.count && header->chunk_bytes == header_.chunk_bytes &&
                header->data_start == header_.data_start) {
                Add(target, header->index);
            } else {
                unreadable_.push_back(
                    {name, "its header describes the stripe otherwise than " + named_.name});
            }
        } else if (!copies.obstacle.empty()) {
            unreadable_.push_back({name, copies.obstacle});
        } else if (!header) {
            without_header_.push_back(name);
        }
    }

    //! Names of devices change when the machine starts; serial numbers do not.
    static bool MayBe(const MemberName &recorded, const MemberName &other) {
        return recorded.serial.empty() || other.serial.empty() ? recorded.path == other.path
                                                               : recorded.serial == other.serial;
    }

    //! Why the member cannot be read where it was; empty where nothing says that it is there.
    std::string ObstacleOf(size_t index) const {
        for (const Unreadable &unreadable : unreadable_) {
            if (MayBe(RecordedName(header_, index), unreadable.name)) {
                return NameText(unreadable.name) + " cannot be read: " + unreadable.why;
            }
        }
        return "";
    }

    //! A clause about a member that was not found; empty where nothing says that it is there.
    std::string RemarkOn(size_t index) const {
        for (const MemberName &other : without_header_) {
            if (MayBe(RecordedName(header_, index), other)) {
                return NameText(other) + " has no header of a member: if it is that one, both were erased or "
                                         "overwritten, and its data may still be there, so do not format it";
            }
        }
        return ObstacleOf(index);
    }

    //! What was found elsewhere may be a copy of what cannot be read.
    void RequireReadable(size_t index) const {
        const std::string obstacle = ObstacleOf(index);
        if (obstacle.empty() || found_[index].empty() ||
            NameOf(found_[index][0]) == RecordedName(header_, index)) {
            return;
        }
        throw Error(ErrorCode::IO,
                    named_.name + ": " + MemberText(index) + " was last at " +
                        NameText(RecordedName(header_, index)) + ". " + obstacle + ". " +
                        found_[index][0].path +
                        " says that it is that member, and may be a copy of it, with which data "
                        "would be lost. Make the first one readable, or take it away");
    }

    //! Two members in one place are headers that were made by hand, or copied into one another.
    void RequireBytesOfItsOwn(size_t index) const {
        for (size_t other = 0; other < index; other++) {
            if (!found_[index].empty() && !found_[other].empty() &&
                ShareBytes(found_[index][0], found_[other][0])) {
                throw Error(
                    ErrorCode::CORRUPT,
                    named_.name + ": " + MemberText(index) + ", " + found_[index][0].path + ", and " +
                        MemberText(other) + ", " + found_[other][0].path +
                        ", have bytes in common, which no format makes; take the one away that is not of "
                        "this volume");
            }
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
        const size_t slash = path.find_last_of('/');
        return slash == std::string::npos ? "" : path.substr(0, std::max<size_t>(slash, 1));
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
            RequireReadable(i);
            const std::string name = NameText(RecordedName(header_, i)), remark = RemarkOn(i);
            RequireBytesOfItsOwn(i);
            if (found_[i].empty()) {
                missing += (missing.empty() ? "" : "; ") + MemberText(i) + ", which was " + name + ", UUID " +
                           UuidText(header_.members[i].uuid) + (remark.empty() ? "" : " (" + remark + ")");
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
    struct Unreadable {
        MemberName name;
        std::string why;
    };
    std::vector<std::vector<Target>> found_; //!< by index
    std::set<std::string> seen_;             //!< identities of what was looked at
    std::vector<Unreadable> unreadable_;
    std::vector<MemberName> without_header_;
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
