#include "ceph/channel/call_key.hpp"

#include <gtest/gtest.h>

namespace rawduck_ceph {

//! The vectors of the reference implementation (vectors_sip128), and one of OpenSSL: bytes 0, 1, 2, … with the key 00 01 … 0f.
TEST(CallKeyTest, SipHashMatchesTheReference) {
    const uint64_t secret[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    std::string data;
    for (char c = 0; c < 16; c++) {
        data += c;
    }
    uint64_t hash[2];
    SipHash128(secret, data.data(), 0, hash);
    EXPECT_EQ(hash[0], 0xe6a825ba047f81a3);
    EXPECT_EQ(hash[1], 0x930255c71472f66d);
    SipHash128(secret, data.data(), 1, hash);
    EXPECT_EQ(hash[0], 0x44af996bd8c187da);
    EXPECT_EQ(hash[1], 0x45fc229b11597634);
    SipHash128(secret, data.data(), 10, hash); // as `openssl mac ... SIPHASH` says
    EXPECT_EQ(hash[0], 0x56691478c30d1100);
    EXPECT_EQ(hash[1], 0xbafbd0f3d34754c9);
}

TEST(CallKeyTest, KeysDifferByObjectRequestAndProcess) {
    const CallKeys keys, others;
    const CallKey key = keys.KeyOf("object 1, version 5", "request", 7);
    EXPECT_TRUE(key == keys.KeyOf("object 1, version 5", "request", 7));
    EXPECT_FALSE(key == keys.KeyOf("object 1, version 6", "request", 7));
    EXPECT_FALSE(key == keys.KeyOf("object 1, version 5", "Request", 7));
    EXPECT_FALSE(key == keys.KeyOf("object 1, version 5r", "equest", 6)) << "another division";
    EXPECT_FALSE(key == others.KeyOf("object 1, version 5", "request", 7));
    EXPECT_EQ(keys.RequestHash("request", 7), keys.RequestHash("request", 7));
    EXPECT_NE(keys.RequestHash("request", 7), keys.RequestHash("request", 6));
}

} // namespace rawduck_ceph
