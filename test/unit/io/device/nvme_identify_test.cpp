//! What NVMe devices say of themselves, and of what went wrong: parsing, refusals, status texts, node names.
#include "common/units.hpp"
#include "io/device/nvme_device.hpp"
#include "support/test_support.hpp"
#include "target/nvme/nvme_identify.hpp"
#include "target/nvme/nvme_node.hpp"
#include "target/nvme/nvme_status.hpp"

#include <cstring>

namespace rawduck {
namespace {

//! The data structures of a plain device: 4096-byte LBAs in
//! format 1, MDTS of 512 KiB, everything optional there.
struct Identity {
    std::vector<uint8_t> controller = std::vector<uint8_t>(4096), name_space = std::vector<uint8_t>(4096);

    Identity() {
        memcpy(&controller[4], "serial-1            ", 20);
        memcpy(&controller[24], "A model                                 ", 40);
        memcpy(&controller[64], "fw\x1b[2J\0\0", 8);
        controller[77] = 7;
        controller[520] = 1 << 2 | 1 << 3;
        controller[525] = 1;
        controller[528] = 15;
        name_space[0] = 0x00;
        name_space[2] = 0x10; // 2^20 LBAs
        name_space[25] = 3;
        name_space[26] = 1;
        SetFormat(0, 0, 9);
        SetFormat(1, 0, 12);
        SetFormat(2, 8, 9);
        SetFormat(3, 0, 14);
    }
    void SetFormat(int index, uint8_t metadata, uint8_t shift) {
        name_space[128 + 4 * index] = metadata;
        name_space[130 + 4 * index] = shift;
    }
    NvmeInfo Parse() const {
        NvmeInfo info;
        ParseIdentify(controller.data(), name_space.data(), info);
        return info;
    }
};

TEST(NvmeIdentify, ReadsWhatTheSpecificationPutsWhere) {
    const NvmeInfo info = Identity().Parse();
    EXPECT_EQ(info.serial, "serial-1");
    EXPECT_EQ(info.model, "A model");
    EXPECT_EQ(info.firmware, "fw?[2J") << "control characters must not reach a terminal";
    EXPECT_EQ(info.max_transfer_bytes, 512 * KIB);
    EXPECT_EQ(info.lba_size, 4096u);
    EXPECT_EQ(info.capacity_lbas, 1u << 20);
    EXPECT_EQ(info.atomic_write_bytes, 64 * KIB);
    EXPECT_TRUE(info.volatile_write_cache && info.deallocate && info.write_zeroes);
    EXPECT_FALSE(info.protection_information);
    EXPECT_NO_THROW(RequireUsable(info, "/dev/ng0n1"));
}

TEST(NvmeIdentify, KnowsWhatIsAbsent) {
    Identity identity;
    identity.controller[77] = 0;
    identity.controller[520] = 0;
    identity.controller[525] = 0;
    const NvmeInfo info = identity.Parse();
    EXPECT_EQ(info.max_transfer_bytes, 0u) << "0 means no limit";
    EXPECT_FALSE(info.volatile_write_cache || info.deallocate || info.write_zeroes);
}

TEST(NvmeIdentify, TheNamespaceOverridesTheAtomicUnit) {
    Identity identity;
    identity.name_space[24] = 2;
    identity.name_space[36] = 3;
    EXPECT_EQ(identity.Parse().atomic_write_bytes, 16 * KIB);
}

TEST(NvmeIdentify, RefusesWhatAVolumeCannotUse) {
    auto refusal = [](const NvmeInfo &info) {
        const Error error = CatchError([&] { RequireUsable(info, "/dev/ng0n1"); });
        EXPECT_EQ(error.Code(), ErrorCode::UNSUPPORTED);
        return std::string(error.what());
    };
    Identity identity;
    NvmeInfo zoned = identity.Parse();
    zoned.command_set = 2;
    EXPECT_NE(refusal(zoned).find("/dev/ng0n1: the namespace is zoned"), std::string::npos);
    identity.name_space[26] = 2;
    EXPECT_NE(refusal(identity.Parse()).find("8 bytes of metadata per LBA"), std::string::npos);
    identity.name_space[26] = 1;
    identity.name_space[29] = 1;
    EXPECT_NE(refusal(identity.Parse()).find("protection information"), std::string::npos);
    identity.name_space[29] = 0;
    identity.name_space[26] = 3;
    EXPECT_NE(refusal(identity.Parse()).find("LBA size is 16384 bytes"), std::string::npos);
}

TEST(NvmeStatus, NamesErrorsAndSaysWhatToDo) {
    EXPECT_EQ(
        NvmeStatusText(0x4281),
        "unrecovered read error: media error (NVMe status type 2h, code 81h); save what can still be read "
        "and replace the device (nvme smart-log)");
    EXPECT_NE(NvmeStatusText(0x4080).find("LBA out of range"), std::string::npos);
    EXPECT_NE(NvmeStatusText(0x4081).find("the namespace is full"), std::string::npos);
    EXPECT_NE(NvmeStatusText(0x280).find("write fault"), std::string::npos);
    EXPECT_NE(NvmeStatusText(0x7C0).find("vendor-specific error (NVMe status type 7h, code C0h)"),
              std::string::npos);
}

TEST(NvmeStatus, OnlyPassingErrorsAreRetried) {
    EXPECT_TRUE(NvmeStatusIsTransient(0x082));
    EXPECT_FALSE(NvmeStatusIsTransient(0x4082)) << "do not retry";
    EXPECT_FALSE(NvmeStatusIsTransient(0x281));
    EXPECT_FALSE(NvmeStatusIsTransient(0x080));
}

TEST(NvmeNode, KnowsTheNames) {
    EXPECT_TRUE(IsNvmeGenericName("ng0n1") && IsNvmeGenericName("ng12n345"));
    EXPECT_FALSE(IsNvmeGenericName("ng0") || IsNvmeGenericName("nvme0n1") || IsNvmeGenericName("ng0n1p1"));
    EXPECT_TRUE(IsNvmeControllerName("nvme0"));
    EXPECT_FALSE(IsNvmeControllerName("nvme0n1") || IsNvmeControllerName("nvme"));
}

TEST(NvmeTransfer, AWriteBecomesItsCommandDwords) {
    Command command;
    command.opcode = Opcode::WRITE;
    command.length = 8 * 4096;
    command.device_offset = (uint64_t(5) << 32) * 4096 + 7 * 4096;
    nvme_passthru_cmd64 transfer = MakeNvmeTransfer(command, 3, 4096);
    EXPECT_EQ(transfer.opcode, 1);
    EXPECT_EQ(transfer.nsid, 3u);
    EXPECT_EQ(transfer.cdw10, 7u);
    EXPECT_EQ(transfer.cdw11, 5u);
    EXPECT_EQ(transfer.cdw12, 7u);
    command.fua = true;
    EXPECT_EQ(MakeNvmeTransfer(command, 3, 4096).cdw12, 7u | 1u << 30);
}

} // namespace
} // namespace rawduck
