#include "ceph/rados/connection/rados_handle.hpp"

#include "ceph/rados/connection/rados_error.hpp"
#include "ceph/rados/connection/reaching_options.hpp"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <new>
#include <sstream>
#include <unistd.h>

namespace rawduck_ceph {
namespace {

std::string ClusterOf(const RadosCredentials &credentials) {
    return credentials.cluster.empty() ? "ceph" : credentials.cluster;
}

std::string UserOf(const RadosCredentials &credentials) {
    return credentials.user.empty() ? "admin" : credentials.user;
}

//! For librados; empty: the first that is there of those that every Ceph client reads.
std::string ConfigurationOf(const RadosCredentials &credentials) {
    if (!credentials.conf.empty() || !credentials.restricted) {
        return credentials.conf;
    }
    // The others lie in the user's home and in the current directory, where a database may be allowed to write.
    const char *named = std::getenv("CEPH_CONF");
    return named ? named : "/etc/ceph/" + ClusterOf(credentials) + ".conf";
}

std::string Monitors(rados_t cluster) {
    char text[1024] = {};
    return rados_conf_get(cluster, "mon_host", text, sizeof text) == 0 && *text ? text : "none named";
}

[[noreturn]] void ThrowConnectError(int code, rados_t cluster, const RadosCredentials &credentials) {
    const std::string what =
        "Ceph: cannot connect as " + credentials.ToString() + ": " + ErrnoText(-code) + "; ";
    switch (-code) {
    case ETIMEDOUT:
        throw Error(ErrorCode::IO, what + "no monitor answered within " +
                                       std::to_string(credentials.timeout_s) +
                                       " s (mon_host: " + Monitors(cluster) +
                                       "). Is the cluster up, and are these its monitors?");
    case EACCES:
    case EPERM:
        throw Error(
            ErrorCode::PERMISSION,
            what + "the monitors refuse the key. Compare the user's key with `ceph auth get client.<user>`");
    case ENOENT:
        throw Error(
            ErrorCode::PERMISSION,
            what + "no key was found for the user. Name its keyring file: "
                   "CREATE SECRET (TYPE rados, USER '...', KEYRING '/etc/ceph/ceph.client.<user>.keyring')");
    default:
        throw Error(ErrorCode::IO, what + "look at the configuration and the monitors (mon_host: " +
                                       Monitors(cluster) + ")");
    }
}

} // namespace

RadosHandle::RadosHandle(const RadosCredentials &credentials) : process_(getpid()) {
    credentials.RequirePlainNames(); // of a kept secret, too
    const std::string cluster = ClusterOf(credentials);
    const std::string user = "client." + UserOf(credentials);
    int code = rados_create2(&cluster_, cluster.c_str(), user.c_str(), 0);
    if (code < 0) {
        throw Error(ErrorCode::INVALID, "Ceph: cannot be " + credentials.ToString() + ": " +
                                            ErrnoText(-code) + "; look at USER and CLUSTER of the secret");
    }
    try {
        Configure(credentials);
        code = rados_connect(cluster_);
        if (code < 0) {
            ThrowConnectError(code, cluster_, credentials);
        }
        // Now, because the monitors have just answered.
        const OsdCounts counts =
            CountOsds(AskMonitors(R"({"prefix": "osd dump"})").value_or(""), OwnAddresses());
        osds_ = counts.up > 0 ? std::optional<OsdCounts>(counts) : std::nullopt;
    } catch (...) {
        rados_shutdown(cluster_);
        throw;
    }
}

RadosHandle::~RadosHandle() {
    // A child of fork() does not have the threads that a shutdown waits for.
    if (getpid() == process_) {
        rados_shutdown(cluster_);
    }
}

int RadosHandle::ReadReachingOptions(const RadosCredentials &credentials) {
    std::istringstream paths(credentials.conf);
    for (std::string path; std::getline(paths, path, ',');) {
        std::ifstream file(path);
        if (!file) {
            continue; // as librados, the first that is there
        }
        for (const auto &[option, value] : ReachingOptions(file, UserOf(credentials))) {
            Set(option.c_str(), value, credentials.ToString());
        }
        return 0;
    }
    return -ENOENT;
}

void RadosHandle::ReadConfiguration(const RadosCredentials &credentials) {
    const std::string path = ConfigurationOf(credentials);
    // librados opens some files as soon as it reads of them, such as that of its log.
    const int code = credentials.restricted && !credentials.conf.empty()
                         ? ReadReachingOptions(credentials)
                         : rados_conf_read_file(cluster_, path.empty() ? nullptr : path.c_str());
    // Without a configuration file the addresses of monitors suffice.
    if (code < 0 && (!credentials.conf.empty() || credentials.mon_host.empty())) {
        throw Error(
            ErrorCode::INVALID,
            "Ceph: cannot read " + (path.empty() ? std::string("/etc/ceph/ceph.conf") : path) + ": " +
                ErrnoText(-code) +
                "; name the cluster's configuration: CREATE SECRET (TYPE rados, CONF '/path/ceph.conf')");
    }
}

void RadosHandle::Configure(const RadosCredentials &credentials) {
    const std::string who = credentials.ToString();
    ReadConfiguration(credentials);
    const std::string timeout = std::to_string(credentials.timeout_s);
    Set("client_mount_timeout", timeout, who);
    Set("rados_mon_op_timeout", timeout, who);
    Set("rados_osd_op_timeout", timeout, who);
    // Errors are reported as exceptions. A library does not write to its program's standard error.
    Set("log_to_stderr", "false", who);
    Set("err_to_stderr", "false", who);
    if (credentials.restricted) {
        // Monitors set options, too, but none that has been set here; and MON_HOST names any monitors.
        Set("log_file", "", who);
        Set("admin_socket", "", who);
    }
    for (auto &option : {std::pair<const char *, const std::string &>{"keyring", credentials.keyring},
                         {"key", credentials.key},
                         {"mon_host", credentials.mon_host}}) {
        if (!option.second.empty()) {
            Set(option.first, option.second, who);
        }
    }
}

void RadosHandle::Set(const char *option, const std::string &value, const std::string &who) {
    const int code = rados_conf_set(cluster_, option, value.c_str());
    if (code < 0) {
        throw Error(ErrorCode::INVALID, "Ceph: cannot be " + who + ": its " + option +
                                            " is not what Ceph takes: " + ErrnoText(-code));
    }
}

std::optional<std::string> RadosHandle::AskMonitors(const std::string &command) const {
    const char *text = command.c_str();
    char *output = nullptr, *message = nullptr;
    size_t output_bytes = 0, message_bytes = 0;
    const int code =
        rados_mon_command(cluster_, &text, 1, nullptr, 0, &output, &output_bytes, &message, &message_bytes);
    const std::string answer(output ? output : "", output_bytes);
    rados_buffer_free(output);
    rados_buffer_free(message);
    return code >= 0 ? std::optional<std::string>(answer) : std::nullopt;
}

void RadosHandle::RequireSameProcess(const std::string &target) const {
    if (getpid() != process_) {
        throw Error(ErrorCode::INVALID,
                    target + ": was opened before this process was forked, and a connection to "
                             "Ceph does not survive that; open it again");
    }
}

RadosCompletion::RadosCompletion(void *argument, rados_callback_t callback)
    : argument_(argument), callback_(callback) {
    if (rados_aio_create_completion2(this, Ended, &completion_) < 0) {
        throw std::bad_alloc();
    }
}

RadosCompletion::~RadosCompletion() {
    if (started_) {
        rados_aio_wait_for_complete_and_cb(completion_);
    }
    rados_aio_release(completion_);
}

void RadosCompletion::Ended(rados_completion_t completion, void *self) {
    auto &ended = *static_cast<RadosCompletion *>(self);
    if (ended.callback_) {
        ended.callback_(completion, ended.argument_);
    }
    ended.end_.Set();
}

int RadosCompletion::Wait(rados_ioctx_t io) {
    end_.Wait([&] { rados_aio_cancel(io, completion_); });
    rados_aio_wait_for_complete_and_cb(completion_);
    return rados_aio_get_return_value(completion_);
}

} // namespace rawduck_ceph
