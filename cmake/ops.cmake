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

# tegula_op_kernels(<portable> <sm90>): the .cu files of the ops; those that end in _sm90 are for that entry alone.
function(tegula_op_kernels portable sm90)
  file(GLOB all CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*/*.cu)
  set(${sm90} ${all})
  list(FILTER ${sm90} INCLUDE REGEX "_sm90\\.cu$")
  list(FILTER all EXCLUDE REGEX "_sm90\\.cu$")
  set(${portable} ${all} PARENT_SCOPE)
  set(${sm90} ${${sm90}} PARENT_SCOPE)
endfunction()
