# What tuccl-p2p is compiled of, by CMake and by `tuccl build-executor`.
set(p2p_folder ${CMAKE_CURRENT_LIST_DIR})
set(p2p_sources
  ${p2p_folder}/gpu.cpp
  ${p2p_folder}/kernels.cu
  ${p2p_folder}/latency.cpp
  ${p2p_folder}/main.cpp
  ${p2p_folder}/plan.cpp
  ${p2p_folder}/report.cpp
  ${p2p_folder}/transfer.cpp)
