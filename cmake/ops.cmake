# The ops, read from their list: src/ops/ops.def. A folder src/ops/<op>/ holds each one's files.
file(STRINGS ${PROJECT_SOURCE_DIR}/src/ops/ops.def op_lines REGEX "^OP\\(")
set(TEGULA_OPS "")
foreach(line IN LISTS op_lines)
  string(REGEX REPLACE "^OP\\(([a-z0-9_]+),.*" "\\1" op "${line}")
  list(APPEND TEGULA_OPS ${op})
endforeach()
list(REMOVE_DUPLICATES TEGULA_OPS)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/ops.def)

# tegula_op_sources(<variable> <suffix>): src/ops/<op>/<op><suffix>.c of every op.
function(tegula_op_sources variable suffix)
  set(sources "")
  foreach(op IN LISTS TEGULA_OPS)
    list(APPEND sources ${PROJECT_SOURCE_DIR}/src/ops/${op}/${op}${suffix}.c)
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# tegula_op_kernels(<portable> <sm80> <sm90>): the .cu files of the ops; those that end in _sm80 or _sm90 are for that
# entry alone. The entry sm80 has the portable ones beside its own.
function(tegula_op_kernels portable sm80 sm90)
  file(GLOB all CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*/*.cu)
  foreach(entry IN ITEMS sm80 sm90)
    set(own ${all})
    list(FILTER own INCLUDE REGEX "_${entry}\\.cu$")
    set(${${entry}} ${own} PARENT_SCOPE)
  endforeach()
  list(FILTER all EXCLUDE REGEX "_sm[89]0\\.cu$")
  set(${portable} ${all} PARENT_SCOPE)
endfunction()

# TEGULA_CPU_ENTRIES: all, or native: the kernels of the best entry for this machine's processor alone, in a fraction of the
# time; the libraries then run on such processors only. TEGULA_CPU_LEFT_OUT lists the entries that get no kernels.
set(TEGULA_CPU_ENTRIES all CACHE STRING "CPU kernels to build: all, or native (this machine's best entry alone)")
set_property(CACHE TEGULA_CPU_ENTRIES PROPERTY STRINGS all native)
set(TEGULA_CPU_LEFT_OUT "")
if(TEGULA_CPU_ENTRIES STREQUAL "native")
  set(processor_flags "")
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo processor_flags REGEX "^flags" LIMIT_COUNT 1)
  endif()
  if(processor_flags MATCHES " avx512f " AND processor_flags MATCHES " avx512bw " AND processor_flags MATCHES " avx512cd "
     AND processor_flags MATCHES " avx512dq " AND processor_flags MATCHES " avx512vl ")
    set(TEGULA_CPU_LEFT_OUT generic avx2)
  elseif(processor_flags MATCHES " avx2 " AND processor_flags MATCHES " fma " AND processor_flags MATCHES " f16c ")
    set(TEGULA_CPU_LEFT_OUT generic avx512)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(TEGULA_CPU_LEFT_OUT avx2 avx512)
  endif()
elseif(NOT TEGULA_CPU_ENTRIES STREQUAL "all")
  message(FATAL_ERROR "TEGULA_CPU_ENTRIES: expected all or native, got ${TEGULA_CPU_ENTRIES}")
endif()
