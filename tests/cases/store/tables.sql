CREATE DATABASE IF NOT EXISTS `secondsight`;

CREATE TABLE IF NOT EXISTS `secondsight`.`gpu_1s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `observed_delta_ms` Int32 CODEC(T64,ZSTD(1)),
  `correction_ms` Int32 CODEC(Delta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `version` UInt128 CODEC(ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `retention_class` UInt8,
  `quality` Map(LowCardinality(String), UInt8),
  `a_ratio` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `c_hertz` Nullable(UInt16) CODEC(ZSTD(1)),
  `d_bytes_total` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `e_seconds_total` Nullable(UInt64) CODEC(DoubleDelta,ZSTD(1)),
  `f_state` Nullable(UInt8) CODEC(Delta,ZSTD(1)),
  `g_loss` Nullable(Float64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(event_time), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfTenMinutes(event_time), host_id, entity, part, event_time, collector_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`node_1s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `observed_delta_ms` Int32 CODEC(T64,ZSTD(1)),
  `correction_ms` Int32 CODEC(Delta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `version` UInt128 CODEC(ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `retention_class` UInt8,
  `quality` Map(LowCardinality(String), UInt8)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(event_time), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfTenMinutes(event_time), host_id, entity, part, event_time, collector_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`fabric_port_1s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `observed_delta_ms` Int32 CODEC(T64,ZSTD(1)),
  `correction_ms` Int32 CODEC(Delta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `version` UInt128 CODEC(ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `retention_class` UInt8,
  `quality` Map(LowCardinality(String), UInt8)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(event_time), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfTenMinutes(event_time), host_id, entity, part, event_time, collector_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`process_job_1s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `observed_delta_ms` Int32 CODEC(T64,ZSTD(1)),
  `correction_ms` Int32 CODEC(Delta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `version` UInt128 CODEC(ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `retention_class` UInt8,
  `quality` Map(LowCardinality(String), UInt8)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(event_time), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfTenMinutes(event_time), host_id, entity, part, event_time, collector_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`training_1s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `observed_delta_ms` Int32 CODEC(T64,ZSTD(1)),
  `correction_ms` Int32 CODEC(Delta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `version` UInt128 CODEC(ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `retention_class` UInt8,
  `quality` Map(LowCardinality(String), UInt8)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(event_time), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfTenMinutes(event_time), host_id, entity, part, event_time, collector_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`inference_1s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `observed_delta_ms` Int32 CODEC(T64,ZSTD(1)),
  `correction_ms` Int32 CODEC(Delta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `version` UInt128 CODEC(ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `retention_class` UInt8,
  `quality` Map(LowCardinality(String), UInt8)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(event_time), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfTenMinutes(event_time), host_id, entity, part, event_time, collector_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`platform_1s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `observed_delta_ms` Int32 CODEC(T64,ZSTD(1)),
  `correction_ms` Int32 CODEC(Delta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `version` UInt128 CODEC(ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `retention_class` UInt8,
  `quality` Map(LowCardinality(String), UInt8)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(event_time), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfTenMinutes(event_time), host_id, entity, part, event_time, collector_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`gpu_30s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `a_ratio_sum` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_min` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_max` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_last` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_p95` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_sum` Nullable(Int64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_min` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_max` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_last` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `c_hertz_last` Nullable(UInt16) CODEC(ZSTD(1)),
  `d_bytes_total_increase` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_first` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_last` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `e_seconds_total_increase` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `e_seconds_total_first` Nullable(UInt64) CODEC(DoubleDelta,ZSTD(1)),
  `e_seconds_total_last` Nullable(UInt64) CODEC(DoubleDelta,ZSTD(1)),
  `f_state_last` Nullable(UInt8) CODEC(Delta,ZSTD(1)),
  `g_loss_sum` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_min` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_max` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_last` Nullable(Float64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfHour(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`node_30s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfHour(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`fabric_port_30s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfHour(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`process_job_30s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfHour(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`training_30s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfHour(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`inference_30s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfHour(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`platform_30s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfHour(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`gpu_5m` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32,
  `a_ratio_sum` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_min` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_max` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_last` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_p95` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_bins` Array(Int16) CODEC(Delta,ZSTD(1)),
  `a_ratio_weights` Array(UInt32) CODEC(GCD,T64,ZSTD(1)),
  `b_watts_sum` Nullable(Int64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_min` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_max` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_last` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `c_hertz_last` Nullable(UInt16) CODEC(ZSTD(1)),
  `d_bytes_total_increase` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_first` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_last` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `e_seconds_total_increase` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `e_seconds_total_first` Nullable(UInt64) CODEC(DoubleDelta,ZSTD(1)),
  `e_seconds_total_last` Nullable(UInt64) CODEC(DoubleDelta,ZSTD(1)),
  `f_state_last` Nullable(UInt8) CODEC(Delta,ZSTD(1)),
  `g_loss_sum` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_min` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_max` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_last` Nullable(Float64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfDay(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`node_5m` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfDay(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`fabric_port_5m` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfDay(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`process_job_5m` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfDay(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`training_5m` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfDay(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`inference_5m` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfDay(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`platform_5m` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfDay(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`gpu_1h` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32,
  `a_ratio_sum` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_min` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_max` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_last` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_p95` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_bins` Array(Int16) CODEC(Delta,ZSTD(1)),
  `a_ratio_weights` Array(UInt32) CODEC(GCD,T64,ZSTD(1)),
  `b_watts_sum` Nullable(Int64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_min` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_max` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_last` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `c_hertz_last` Nullable(UInt16) CODEC(ZSTD(1)),
  `d_bytes_total_increase` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_first` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_last` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `e_seconds_total_increase` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `e_seconds_total_first` Nullable(UInt64) CODEC(DoubleDelta,ZSTD(1)),
  `e_seconds_total_last` Nullable(UInt64) CODEC(DoubleDelta,ZSTD(1)),
  `f_state_last` Nullable(UInt8) CODEC(Delta,ZSTD(1)),
  `g_loss_sum` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_min` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_max` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_last` Nullable(Float64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfMonth(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`node_1h` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfMonth(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`fabric_port_1h` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfMonth(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`process_job_1h` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfMonth(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`training_1h` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfMonth(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`inference_1h` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfMonth(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`platform_1h` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfMonth(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`gpu_1d` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32,
  `a_ratio_sum` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_min` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_max` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_last` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_p95` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_bins` Array(Int16) CODEC(Delta,ZSTD(1)),
  `a_ratio_weights` Array(UInt32) CODEC(GCD,T64,ZSTD(1)),
  `b_watts_sum` Nullable(Int64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_min` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_max` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_last` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `c_hertz_last` Nullable(UInt16) CODEC(ZSTD(1)),
  `d_bytes_total_increase` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_first` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_last` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `e_seconds_total_increase` Nullable(UInt64) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `e_seconds_total_first` Nullable(UInt64) CODEC(DoubleDelta,ZSTD(1)),
  `e_seconds_total_last` Nullable(UInt64) CODEC(DoubleDelta,ZSTD(1)),
  `f_state_last` Nullable(UInt8) CODEC(Delta,ZSTD(1)),
  `g_loss_sum` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_min` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_max` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_last` Nullable(Float64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYear(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfYear(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`node_1d` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYear(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfYear(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`fabric_port_1d` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYear(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfYear(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`process_job_1d` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYear(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfYear(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`training_1d` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYear(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfYear(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`inference_1d` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYear(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfYear(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`platform_1d` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `source_rank` UInt8,
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `samples` UInt32,
  `covered_ms` UInt32,
  `covered_other` Map(LowCardinality(String), UInt32),
  `version` UInt64,
  `retention_class` UInt8,
  `increase_other` Map(LowCardinality(String), UInt32),
  `resets` Map(LowCardinality(String), UInt32),
  `changes` Map(LowCardinality(String), UInt32),
  `state_ms` Map(LowCardinality(String), UInt32),
  `samples_other` Map(LowCardinality(String), UInt32),
  `source_samples` UInt32
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYear(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfYear(window_start), host_id, entity, part, window_start, collector_id, owner_team, job_id, workload_id, model_id)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 20, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864;

CREATE TABLE IF NOT EXISTS `secondsight`.`gpu_cluster_5m` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `region` LowCardinality(String),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `gpu_model` LowCardinality(String),
  `part` LowCardinality(String),
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `gpus` UInt32 CODEC(Delta,ZSTD(1)),
  `samples` UInt64 CODEC(Delta,ZSTD(1)),
  `covered_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `expected_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `gpus_other` Map(LowCardinality(String), UInt64),
  `covered_other` Map(LowCardinality(String), UInt64),
  `increase_other` Map(LowCardinality(String), UInt64),
  `resets` Map(LowCardinality(String), UInt64),
  `changes` Map(LowCardinality(String), UInt64),
  `state_ms` Map(LowCardinality(String), UInt64),
  `samples_other` Map(LowCardinality(String), UInt64),
  `version` UInt64,
  `retention_class` UInt8,
  `a_ratio_sum` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `a_ratio_min` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_max` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_p95` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_bins` Array(Int16) CODEC(Delta,ZSTD(1)),
  `a_ratio_weights` Array(UInt64) CODEC(GCD,T64,ZSTD(1)),
  `b_watts_sum` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `b_watts_min` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_max` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_increase` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `e_seconds_total_increase` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `g_loss_sum` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_min` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_max` Nullable(Float64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfDay(window_start), part, window_start, region, job_id, workload_id, owner_team, model_id, gpu_model)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 5, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864, min_age_to_force_merge_seconds = 900, min_age_to_force_merge_on_partition_only = 1;

CREATE TABLE IF NOT EXISTS `secondsight`.`node_cluster_5m` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `region` LowCardinality(String),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `gpu_model` LowCardinality(String),
  `part` LowCardinality(String),
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `hosts` UInt32 CODEC(Delta,ZSTD(1)),
  `samples` UInt64 CODEC(Delta,ZSTD(1)),
  `covered_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `expected_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `hosts_other` Map(LowCardinality(String), UInt64),
  `covered_other` Map(LowCardinality(String), UInt64),
  `increase_other` Map(LowCardinality(String), UInt64),
  `resets` Map(LowCardinality(String), UInt64),
  `changes` Map(LowCardinality(String), UInt64),
  `state_ms` Map(LowCardinality(String), UInt64),
  `samples_other` Map(LowCardinality(String), UInt64),
  `version` UInt64,
  `retention_class` UInt8
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfDay(window_start), part, window_start, region, job_id, workload_id, owner_team, model_id, gpu_model)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 5, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864, min_age_to_force_merge_seconds = 900, min_age_to_force_merge_on_partition_only = 1;

CREATE TABLE IF NOT EXISTS `secondsight`.`gpu_cluster_1h` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `region` LowCardinality(String),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `gpu_model` LowCardinality(String),
  `part` LowCardinality(String),
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `gpus` UInt32 CODEC(Delta,ZSTD(1)),
  `samples` UInt64 CODEC(Delta,ZSTD(1)),
  `covered_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `expected_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `gpus_other` Map(LowCardinality(String), UInt64),
  `covered_other` Map(LowCardinality(String), UInt64),
  `increase_other` Map(LowCardinality(String), UInt64),
  `resets` Map(LowCardinality(String), UInt64),
  `changes` Map(LowCardinality(String), UInt64),
  `state_ms` Map(LowCardinality(String), UInt64),
  `samples_other` Map(LowCardinality(String), UInt64),
  `version` UInt64,
  `retention_class` UInt8,
  `a_ratio_sum` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `a_ratio_min` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_max` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_p95` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_bins` Array(Int16) CODEC(Delta,ZSTD(1)),
  `a_ratio_weights` Array(UInt64) CODEC(GCD,T64,ZSTD(1)),
  `b_watts_sum` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `b_watts_min` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_max` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_increase` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `e_seconds_total_increase` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `g_loss_sum` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_min` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_max` Nullable(Float64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfMonth(window_start), part, window_start, region, job_id, workload_id, owner_team, model_id, gpu_model)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 5, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864, min_age_to_force_merge_seconds = 900, min_age_to_force_merge_on_partition_only = 0;

CREATE TABLE IF NOT EXISTS `secondsight`.`node_cluster_1h` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `region` LowCardinality(String),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `gpu_model` LowCardinality(String),
  `part` LowCardinality(String),
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `hosts` UInt32 CODEC(Delta,ZSTD(1)),
  `samples` UInt64 CODEC(Delta,ZSTD(1)),
  `covered_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `expected_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `hosts_other` Map(LowCardinality(String), UInt64),
  `covered_other` Map(LowCardinality(String), UInt64),
  `increase_other` Map(LowCardinality(String), UInt64),
  `resets` Map(LowCardinality(String), UInt64),
  `changes` Map(LowCardinality(String), UInt64),
  `state_ms` Map(LowCardinality(String), UInt64),
  `samples_other` Map(LowCardinality(String), UInt64),
  `version` UInt64,
  `retention_class` UInt8
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfMonth(window_start), part, window_start, region, job_id, workload_id, owner_team, model_id, gpu_model)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 5, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864, min_age_to_force_merge_seconds = 900, min_age_to_force_merge_on_partition_only = 0;

CREATE TABLE IF NOT EXISTS `secondsight`.`gpu_cluster_1d` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `region` LowCardinality(String),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `gpu_model` LowCardinality(String),
  `part` LowCardinality(String),
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `gpus` UInt32 CODEC(Delta,ZSTD(1)),
  `samples` UInt64 CODEC(Delta,ZSTD(1)),
  `covered_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `expected_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `gpus_other` Map(LowCardinality(String), UInt64),
  `covered_other` Map(LowCardinality(String), UInt64),
  `increase_other` Map(LowCardinality(String), UInt64),
  `resets` Map(LowCardinality(String), UInt64),
  `changes` Map(LowCardinality(String), UInt64),
  `state_ms` Map(LowCardinality(String), UInt64),
  `samples_other` Map(LowCardinality(String), UInt64),
  `version` UInt64,
  `retention_class` UInt8,
  `a_ratio_sum` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `a_ratio_min` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_max` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_p95` Nullable(UInt32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `a_ratio_bins` Array(Int16) CODEC(Delta,ZSTD(1)),
  `a_ratio_weights` Array(UInt64) CODEC(GCD,T64,ZSTD(1)),
  `b_watts_sum` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `b_watts_min` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `b_watts_max` Nullable(Int32) CODEC(GCD,Delta,T64('bit'),ZSTD(1)),
  `d_bytes_total_increase` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `e_seconds_total_increase` Nullable(Decimal(38, 0)) CODEC(ZSTD(1)),
  `g_loss_sum` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_min` Nullable(Float64) CODEC(ZSTD(1)),
  `g_loss_max` Nullable(Float64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYear(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfYear(window_start), part, window_start, region, job_id, workload_id, owner_team, model_id, gpu_model)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 5, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864, min_age_to_force_merge_seconds = 900, min_age_to_force_merge_on_partition_only = 0;

CREATE TABLE IF NOT EXISTS `secondsight`.`node_cluster_1d` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `region` LowCardinality(String),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `gpu_model` LowCardinality(String),
  `part` LowCardinality(String),
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `first_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `hosts` UInt32 CODEC(Delta,ZSTD(1)),
  `samples` UInt64 CODEC(Delta,ZSTD(1)),
  `covered_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `expected_ms` UInt64 CODEC(Delta,ZSTD(1)),
  `hosts_other` Map(LowCardinality(String), UInt64),
  `covered_other` Map(LowCardinality(String), UInt64),
  `increase_other` Map(LowCardinality(String), UInt64),
  `resets` Map(LowCardinality(String), UInt64),
  `changes` Map(LowCardinality(String), UInt64),
  `state_ms` Map(LowCardinality(String), UInt64),
  `samples_other` Map(LowCardinality(String), UInt64),
  `version` UInt64,
  `retention_class` UInt8
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYear(window_start), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfYear(window_start), part, window_start, region, job_id, workload_id, owner_team, model_id, gpu_model)
SETTINGS default_compression_codec = 'ZSTD(1)', auto_statistics_types = '', merge_selector_base = 5, nullable_serialization_version = 'allow_sparse', min_bytes_for_wide_part = 67108864, min_age_to_force_merge_seconds = 900, min_age_to_force_merge_on_partition_only = 0;

CREATE TABLE IF NOT EXISTS `secondsight`.`histograms_1s` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `observed_delta_ms` Int32 CODEC(T64,ZSTD(1)),
  `correction_ms` Int32 CODEC(Delta,ZSTD(1)),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `version` UInt128 CODEC(ZSTD(1)),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `retention_class` UInt8,
  `kind` LowCardinality(String),
  `metric` LowCardinality(String),
  `bounds` Array(Float64) CODEC(ZSTD(1)),
  `buckets` Array(UInt64) CODEC(ZSTD(1)),
  `sum` Float64 CODEC(ZSTD(1)),
  `start_time` Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toDate(event_time), retention_class)
ORDER BY (tenant_id, cluster_id, toStartOfTenMinutes(event_time), host_id, entity, part, event_time, collector_id, kind, metric)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`events` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `kind` LowCardinality(String),
  `metric` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `end_time` Nullable(DateTime64(3, 'UTC')),
  `code` Int64,
  `severity` LowCardinality(String),
  `text_hash` UInt64,
  `event_version` UInt32,
  `attributes` Map(LowCardinality(String), String),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String)
)
ENGINE = ReplacingMergeTree(event_version)
PARTITION BY (toYYYYMM(event_time))
ORDER BY (tenant_id, cluster_id, event_time, host_id, kind, metric, entity, part, code, text_hash)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`event_history` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `kind` LowCardinality(String),
  `metric` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `end_time` Nullable(DateTime64(3, 'UTC')),
  `code` Int64,
  `severity` LowCardinality(String),
  `text_hash` UInt64,
  `event_version` UInt32,
  `attributes` Map(LowCardinality(String), String),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `content_hash` UInt64
)
ENGINE = ReplacingMergeTree
PARTITION BY (toYYYYMM(event_time))
ORDER BY (tenant_id, cluster_id, event_time, host_id, kind, metric, entity, part, code, text_hash, event_version, content_hash)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`infos` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `kind` LowCardinality(String),
  `metric` LowCardinality(String),
  `event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `text_hash` UInt64,
  `event_version` UInt32,
  `attributes` Map(LowCardinality(String), String),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `collector_id` LowCardinality(String),
  `source` LowCardinality(String),
  `source_rank` UInt8,
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `sequence` UInt64 CODEC(DoubleDelta,ZSTD(1)),
  `boot_id` LowCardinality(String),
  `schema_id` UInt64 CODEC(Delta,ZSTD(1)),
  `skew` UInt8,
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String)
)
ENGINE = ReplacingMergeTree(event_version)
PARTITION BY (toYYYYMM(event_time))
ORDER BY (tenant_id, cluster_id, event_time, host_id, kind, metric, entity, part, text_hash)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`allocations` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `job_id` LowCardinality(String),
  `workload_id` LowCardinality(String),
  `owner_team` LowCardinality(String),
  `model_id` LowCardinality(String),
  `start_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `end_time` Nullable(DateTime64(3, 'UTC')),
  `version` UInt32,
  `landed_at` DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (tenant_id, cluster_id, entity, part, start_time, job_id)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`entities` (
  `tenant_id` LowCardinality(String),
  `region` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `rack` LowCardinality(String),
  `host_id` LowCardinality(String),
  `kind` LowCardinality(String),
  `entity` LowCardinality(String),
  `part` LowCardinality(String),
  `gpu_model` LowCardinality(String),
  `attributes` Map(LowCardinality(String), String),
  `collector_id` LowCardinality(String),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `from_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_seen` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `to_time` Nullable(DateTime64(3, 'UTC')),
  `version` UInt64
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (tenant_id, cluster_id, host_id, kind, entity, part, collector_id, from_time)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`plans` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `kind` LowCardinality(String),
  `interval_ms` UInt32 CODEC(Delta,ZSTD(1)),
  `from_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `to_time` Nullable(DateTime64(3, 'UTC')),
  `version` UInt64,
  `without` LowCardinality(String)
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (tenant_id, cluster_id, host_id, collector_id, kind, from_time)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`progress` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `watermark` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `newest_event_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `idle` UInt8,
  `backlog` UInt8,
  `rollup_through` DateTime('UTC'),
  `begun_through` DateTime('UTC'),
  `partition` Int32,
  `version` UInt64
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (tenant_id, cluster_id, host_id, collector_id)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`rewrites` (
  `table_name` LowCardinality(String),
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `from_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `to_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `written_at` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1))
)
ENGINE = ReplacingMergeTree(written_at)
ORDER BY (table_name, tenant_id, cluster_id, from_time, to_time)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`dead_letters` (
  `stage` LowCardinality(String),
  `code` LowCardinality(String),
  `message` String CODEC(ZSTD(1)),
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `kind` LowCardinality(String),
  `metric` LowCardinality(String),
  `first_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `last_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `rows` UInt64 CODEC(Delta,ZSTD(1)),
  `values` UInt64 CODEC(Delta,ZSTD(1)),
  `ingest_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `payload` String CODEC(ZSTD(1)),
  `id` UInt64,
  `log_partition` Int32 DEFAULT -1,
  `log_offset` Int64 DEFAULT -1
)
ENGINE = ReplacingMergeTree
PARTITION BY (toYYYYMM(ingest_time))
ORDER BY (tenant_id, cluster_id, stage, ingest_time, id)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`ledger` (
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `host_id` LowCardinality(String),
  `collector_id` LowCardinality(String),
  `spool_id` UInt64 CODEC(Delta,ZSTD(1)),
  `kind` LowCardinality(String),
  `window_start` DateTime('UTC') CODEC(DoubleDelta,ZSTD(1)),
  `outcome` LowCardinality(String),
  `reason` LowCardinality(String),
  `item` String CODEC(ZSTD(1)),
  `rows` UInt64 CODEC(Delta,ZSTD(1)),
  `values` UInt64 CODEC(Delta,ZSTD(1)),
  `last_time` DateTime64(3, 'UTC') CODEC(DoubleDelta,ZSTD(1)),
  `records` String CODEC(ZSTD(1)),
  `version` UInt64
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start))
ORDER BY (tenant_id, cluster_id, toStartOfHour(window_start), collector_id, kind, spool_id, window_start, outcome, reason, item)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`schema_version` (
  `fingerprint` UInt64,
  `version` UInt32,
  `tables` UInt32
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (fingerprint)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`rollups_made` (
  `table_name` LowCardinality(String),
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `window_start` DateTime('UTC'),
  `source_rows` UInt64 CODEC(Delta,ZSTD(1)),
  `source_version` UInt64,
  `made_at` DateTime64(3, 'UTC'),
  `version` UInt64
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (toYYYYMM(window_start))
ORDER BY (table_name, tenant_id, cluster_id, window_start)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`rollups_seen` (
  `table_name` LowCardinality(String),
  `block` Int64,
  `version` UInt64
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (table_name)
SETTINGS default_compression_codec = 'ZSTD(1)';

CREATE TABLE IF NOT EXISTS `secondsight`.`rollups_through` (
  `table_name` LowCardinality(String),
  `tenant_id` LowCardinality(String),
  `cluster_id` LowCardinality(String),
  `through` DateTime('UTC'),
  `version` UInt64
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (table_name, tenant_id, cluster_id)
SETTINGS default_compression_codec = 'ZSTD(1)';
