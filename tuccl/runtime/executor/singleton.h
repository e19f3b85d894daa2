// The one object of a type in this process. Never destroyed: calls may still come while the process
// ends.
#ifndef TUCCL_EXECUTOR_SINGLETON_H
#define TUCCL_EXECUTOR_SINGLETON_H

namespace tuccl {

template <typename Object> Object &singleton() {
    static Object *const only = new Object;
    return *only;
}

} // namespace tuccl

#endif
