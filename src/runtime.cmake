# libtegula_model: the runtime, on the public ops alone.
find_package(PkgConfig REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET GLOBAL jansson)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET GLOBAL libutf8proc)
add_library(
  tegula_model_objects OBJECT
  files/atomic_directory.c
  files/durable_file.c
  files/file_error.c
  files/file_map.c
  files/json_file.c
  files/leftover_directory.c
  files/safetensors.c
  files/safetensors_dtype.c
  files/safetensors_entry.c
  files/safetensors_writer.c
  files/utf8.c
  files/utf8_stream.c
  text/byte_alphabet.c
  text/tokenizer.c
  text/tokenizer_load.c
  text/tokenizer_save.c
  chat/builtin_templates.c
  chat/builtins/template_attribute.c
  chat/builtins/template_braces.c
  chat/builtins/template_call.c
  chat/builtins/template_cut.c
  chat/builtins/template_filters.c
  chat/builtins/template_functions.c
  chat/builtins/template_methods.c
  chat/builtins/template_order.c
  chat/builtins/template_percent.c
  chat/builtins/template_search.c
  chat/builtins/template_selection.c
  chat/builtins/template_tests.c
  chat/chat_render.c
  chat/chat_sources.c
  chat/chat_values.c
  chat/syntax/template_lexer.c
  chat/syntax/template_literal.c
  chat/syntax/template_operators.c
  chat/syntax/template_parser.c
  chat/syntax/template_statements.c
  chat/syntax/template_suffix.c
  chat/template_eval.c
  chat/template_loop.c
  chat/template_render.c
  chat/template_set.c
  chat/template_slice.c
  chat/values/template_arithmetic.c
  chat/values/template_case.c
  chat/values/template_compare.c
  chat/values/template_format.c
  chat/values/template_job.c
  chat/values/template_json.c
  chat/values/template_number.c
  chat/values/template_print.c
  chat/values/template_text.c
  chat/values/template_value.c
  model/activations.c
  model/config.c
  model/config_gpt2.c
  model/config_keys.c
  model/config_qwen3.c
  model/config_rope.c
  model/model.c
  model/parameters.c
  model/preset.c
  model/rope_tables.c
  model/transformer.c
  model/transformer_bwd.c
  model/weight_files.c
  model/weights.c
  generation/generate.c
  generation/sampler.c
  generation/session.c
  training/checkpoint.c
  training/trainer.c
  training/trainer_options.c
  training/trainer_step.c)
target_link_libraries(tegula_model_objects PRIVATE tegula_flags PkgConfig::jansson PkgConfig::utf8proc)

# Static: what tests link; sees the internal symbols too.
add_library(tegula_model_static STATIC $<TARGET_OBJECTS:tegula_model_objects>)
target_link_libraries(tegula_model_static PUBLIC tegula_static PkgConfig::jansson PkgConfig::utf8proc)

# Shared: the product; exports the public prototypes alone.
add_library(tegula_model SHARED $<TARGET_OBJECTS:tegula_model_objects>)
target_include_directories(tegula_model PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(tegula_model PRIVATE tegula PkgConfig::jansson PkgConfig::utf8proc m)
# nodelete: once loaded it stays, as jansson keeps pointers to json_file.c's allocator.
target_link_options(tegula_model PRIVATE ${TEGULA_LINK_OPTIONS} -Wl,-z,nodelete)
set_target_properties(tegula_model PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
