// The scenarios by name. SCENARIO(name) { ... } adds one.
#ifndef TUCCL_TEST_SCENARIOS_H
#define TUCCL_TEST_SCENARIOS_H

#include <map>
#include <string>

inline std::map<std::string, void (*)()> &scenarios() {
    static std::map<std::string, void (*)()> all;
    return all;
}

#define SCENARIO(name)                                                                             \
    void name();                                                                                   \
    [[maybe_unused]] const bool has_##name = scenarios().emplace(#name, name).second;              \
    void name()

#endif
