#include "ceph/files/query_interrupt.hpp"

#include "duckdb/main/client_context_state.hpp"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rawduck_ceph {

namespace {

constexpr const char *OUTER_QUERY = "rawduck_ceph_outer_query";

struct OuterQuery final : duckdb::ClientContextState {
    duckdb::weak_ptr<duckdb::ClientContext> context;
};

template <class FUNCTION> FUNCTION *PythonFunction(const char *name) {
    return reinterpret_cast<FUNCTION *>(dlsym(RTLD_DEFAULT, name));
}

//! Python only notes a signal, and runs its handler in the main thread when DuckDB returns there. DuckDB has let go
//! of Python's lock while it waits here.
bool HasPythonSignal() {
    static auto *const initialized = PythonFunction<int()>("Py_IsInitialized");
    static auto *const ensure = PythonFunction<int()>("PyGILState_Ensure"); // the state is an enumeration
    static auto *const release = PythonFunction<void(int)>("PyGILState_Release");
    static auto *const check_signals = PythonFunction<int()>("PyErr_CheckSignals");
    static auto *const clear = PythonFunction<void()>("PyErr_Clear");
    const bool is_python = initialized && ensure && release && check_signals && clear && initialized();
    if (!is_python || syscall(SYS_gettid) != getpid()) {
        return false;
    }
    const int state = ensure();
    const bool raised = check_signals() != 0;
    if (raised) {
        clear(); // DuckDB raises an exception of its own
    }
    release(state);
    return raised;
}

bool IsInterrupted(duckdb::ClientContext &context) {
    if (!context.IsInterrupted() && HasPythonSignal()) {
        context.Interrupt(); // for the threads that wait elsewhere
    }
    return context.IsInterrupted();
}

} // namespace

InterruptScope::Check InterruptCheckOf(duckdb::ClientContext &context) {
    const auto outer = context.registered_state->Get<OuterQuery>(OUTER_QUERY);
    duckdb::weak_ptr<duckdb::ClientContext> query;
    if (outer) {
        query = outer->context;
    } else {
        query = context.shared_from_this();
    }
    return [query] {
        auto locked = query.lock();
        return locked && IsInterrupted(*locked);
    };
}

InterruptScope::Check InterruptCheckOf(duckdb::optional_ptr<duckdb::FileOpener> opener) {
    auto context = duckdb::FileOpener::TryGetClientContext(opener);
    return context ? InterruptCheckOf(*context) : [] { return false; };
}

void RunsFor(duckdb::ClientContext &context, duckdb::ClientContext &outer) {
    context.registered_state->GetOrCreate<OuterQuery>(OUTER_QUERY)->context = outer.shared_from_this();
}

} // namespace rawduck_ceph
